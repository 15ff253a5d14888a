/* What the machine is, as the environment has it, and who may call the driver. */
#include "tests/cuda/driver/driver.h"
#include "tests/cuda/driver/turn.h"

#include "cuda/kernels/give_way.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct settings settings;
struct CUctx_st contexts[MAX_GPUS];
pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t driver_failed;

static atomic_int owner; /* the process that called cuInit: a child of fork has no driver */
static _Thread_local bool in_host_function;
static bool has_delays;
static atomic_ullong random_state;

void *must_alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (p)
		return p;
	fputs("fake cuda: no memory\n", stderr);
	abort();
}

static size_t number(const char *name, size_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* "all", "none", or pairs "0-1,2-3" that reach each other. */
static void read_peers(const char *text)
{
	int a, b, n;
	bool all = text == NULL || strcmp(text, "all") == 0;

	for (int i = 0; i < MAX_GPUS; i++)
		settings.peers[i] = all ? (1U << MAX_GPUS) - 1 : 1U << i;
	if (all || strcmp(text, "none") == 0)
		return;
	for (; sscanf(text, "%d-%d%n", &a, &b, &n) == 2; text += text[0] == ',') {
		text += n;
		if (a < 0 || b < 0 || a >= MAX_GPUS || b >= MAX_GPUS)
			break;
		settings.peers[a] |= 1U << b;
		settings.peers[b] |= 1U << a;
	}
	if (*text == '\0')
		return;
	fprintf(stderr, "fake cuda: FAKE_CUDA_PEERS ends in \"%s\"\n", text);
	abort();
}

static unsigned connections(void)
{
	const char *text = getenv("FAKE_CUDA_CONNECTIONS");
	size_t n = text && strcmp(text, "cuda") == 0 ? number("CUDA_DEVICE_MAX_CONNECTIONS", 8)
						     : number("FAKE_CUDA_CONNECTIONS", 0);

	return (unsigned)(n < MAX_CONNECTIONS ? n : MAX_CONNECTIONS);
}

static void read_settings(void)
{
	pthread_condattr_t monotonic;

	settings.gpus = (int)number("FAKE_CUDA_DEVICES", 1);
	settings.memory = number("FAKE_CUDA_MEMORY", (size_t)4 << 30);
	settings.sms = (unsigned)number("FAKE_CUDA_SMS", 8);
	settings.blocks_per_sm = (unsigned)number("FAKE_CUDA_BLOCKS_PER_SM", 1);
	settings.connections = connections();
	settings.has_mps = number("FAKE_CUDA_MPS", 0) != 0;
	settings.has_pieces = number("FAKE_CUDA_VMM", 1) != 0;
	settings.has_fds = number("FAKE_CUDA_FDS", 1) != 0;
	settings.has_fabric = number("FAKE_CUDA_FABRIC", 0) != 0;
	settings.is_fabric_refused = number("FAKE_CUDA_FABRIC", 0) == 2;
	settings.has_multicast = number("FAKE_CUDA_MULTICAST", 0) != 0;
	settings.has_wide_waits = number("FAKE_CUDA_WAITS_64", 1) != 0;
	settings.dma_buf = (unsigned)number("FAKE_CUDA_DMA_BUF", 0);
	settings.lacks_dma_buf = number("FAKE_CUDA_DMA_BUF_LACKS", MAX_GPUS);
	settings.refuses_dma_buf = number("FAKE_CUDA_DMA_BUF_REFUSES", MAX_GPUS);
	settings.machine = getenv("FAKE_CUDA_MACHINE");
	turn_open();
	if (settings.gpus > MAX_GPUS)
		settings.gpus = MAX_GPUS;
	read_peers(getenv("FAKE_CUDA_PEERS"));
	faults_read(getenv("FAKE_CUDA_FAULTS"));
	has_delays = getenv("FAKE_CUDA_DELAY") != NULL;
	atomic_store(&random_state, number("FAKE_CUDA_DELAY", 0) * 0x9e3779b97f4a7c15 + 1);
	for (int i = 0; i < MAX_GPUS; i++)
		contexts[i].gpu = i;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&driver_failed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

CUresult cuInit(unsigned flags)
{
	CUresult error = CUDA_SUCCESS;
	int known = atomic_load(&owner);

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (known != 0 && known != getpid()) /* a thread of the parent may have held the lock */
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&driver_lock);
	if (atomic_load(&owner) == 0) {
		read_settings();
		if (settings.gpus > 0)
			atomic_store(&owner, getpid());
	}
	if (settings.gpus <= 0)
		error = CUDA_ERROR_NO_DEVICE;
	pthread_mutex_unlock(&driver_lock);
	return error;
}

void driver_in_host_function(bool is_in)
{
	in_host_function = is_in;
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t left;
	bool is_held;
	pthread_t by;
} hold = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

/* With hold.lock. */
static void wait_for_hold(void)
{
	while (hold.is_held && !pthread_equal(hold.by, pthread_self()))
		pthread_cond_wait(&hold.left, &hold.lock);
}

void driver_hold(void)
{
	pthread_mutex_lock(&hold.lock);
	wait_for_hold();
	hold.is_held = true;
	hold.by = pthread_self();
	pthread_mutex_unlock(&hold.lock);
}

void driver_let_go(void)
{
	pthread_mutex_lock(&hold.lock);
	hold.is_held = false;
	pthread_cond_broadcast(&hold.left);
	pthread_mutex_unlock(&hold.lock);
}

CUresult driver_enter(void)
{
	pthread_mutex_lock(&hold.lock);
	wait_for_hold();
	pthread_mutex_unlock(&hold.lock);
	if (in_host_function) {
		fputs("fake cuda: a host function calls the driver (CUDA_ERROR_NOT_PERMITTED)\n",
		      stderr);
		abort();
	}
	return atomic_load(&owner) == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

unsigned fake_cuda_connections(void)
{
	return settings.connections;
}

bool gpu_can_reach(int gpu, int peer)
{
	return settings.peers[gpu] >> peer & 1U;
}

void driver_delay(void)
{
	if (!has_delays)
		return;
	unsigned long long x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	for (x = x >> 33 & 15; x > 0; x--)
		give_way();
}
