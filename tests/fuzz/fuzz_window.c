/* Would break: joining a window, by what the other end of its socket says and passes: as a leader
 * to whom members come, and as a member, whose leader may pass a segment that is none. The first
 * byte says which. */
#include "fuzz.h"

#include "core/shared_memory.h"
#include "collectives/window/window_join.h"
#include "core/net.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIZE    3
#define MEMBERS 4

static struct window_config config_of(int rank)
{
	return (struct window_config){.rank = rank,
				      .size = SIZE,
				      .comm_id = {3, 4},
				      .window_bytes = 65536,
				      .policy = wait_policy_on(1, wait_cores()),
				      .cores = 1};
}

struct hello {
	uint64_t magic, comm_id[2];
	int32_t rank, size;
};

static void come(const char *name, int *fd, struct input *in)
{
	struct hello hello = {0x7475747469303177u, {3, 4}, 1 + input_byte(in) % 2, SIZE};
	uint8_t how = input_byte(in);
	int32_t answer = how & 1 ? (int8_t)input_byte(in) : 0;

	*fd = fuzz_connect(name);
	if (how & 2)
		input_bytes(in, (uint8_t *)&hello + input_byte(in) % sizeof hello, 1);
	fuzz_send(*fd, &hello, how & 4 ? input_byte(in) % sizeof hello : sizeof hello);
	if (!(how & 8))
		fuzz_send(*fd, &answer, sizeof answer);
	if (how & 16)
		shutdown(*fd, SHUT_WR);
}

static void lead(struct input *in)
{
	static unsigned leaders;
	struct window_config config = config_of(0);
	struct join_wait wait_limit = {1, NULL, NULL}; /* all ranks that come have come */
	struct window *window;
	int fds[MEMBERS], listener, members = input_byte(in) % (MEMBERS + 1);
	char name[40];

	snprintf(name, sizeof name, "tutti-fuzz-window-%d-%u", (int)getpid(), leaders++);
	MUST(net_unix_listen(name, MEMBERS, &listener) == TUTTI_OK);
	for (int i = 0; i < members; i++)
		come(name, &fds[i], in);
	if (window_lead_at(&window, &config, listener, &wait_limit) == TUTTI_OK)
		window_destroy(window);
	for (int i = 0; i < members; i++)
		close(fds[i]);
}

static void alter(struct geometry *g, struct input *in)
{
	uint64_t *words = (uint64_t *)(void *)g;

	for (int n = input_byte(in) % 8; n > 0; n--) {
		size_t at = input_byte(in) % (sizeof *g / sizeof *words);
		uint8_t how = input_byte(in);
		if (how & 1)
			words[at] += (uint64_t)(int8_t)input_byte(in) << (how & 2 ? 0 : 7);
		else if (how & 4)
			words[at] = (uint64_t)input_number(in) << (how >> 3);
		else
			g->size = (int8_t)input_byte(in);
	}
}

static int make_memory(struct input *in)
{
	struct window_config config = config_of(0);
	struct geometry geometry;
	uint8_t how = input_byte(in);
	uint64_t bytes;
	int fd;

	MUST(geometry_choose(&geometry, &config) == TUTTI_OK);
	bytes = how & 1 ? input_number(in) % (4 << 20) : geometry.total_bytes;
	if (how & 2)
		alter(&geometry, in);
	MUST(shared_memory_create("fuzz", bytes ? bytes : 1, &fd) == TUTTI_OK);
	if (bytes >= sizeof geometry)
		MUST(pwrite(fd, &geometry, sizeof geometry, 0) == (ssize_t)sizeof geometry);
	return fd;
}

static void pass(int socket, const void *bytes, size_t n, int memory, uint8_t how)
{
	int fds[3] = {memory, memory, memory};

	for (int i = 0; memory < 0 && i < 3; i++)
		MUST((fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) >= 0);
	(void)net_send_fds(socket, bytes, n, fds, how & 3, 0);
	for (int i = 0; memory < 0 && i < 3; i++)
		close(fds[i]);
}

/* What a leader says, or nearly. */
static void say_all(int socket, struct input *in)
{
	struct {
		int32_t status;
		uint8_t has_process[WINDOW_MAX_RANKS];
	} welcome = {0, {0}};
	int memory = make_memory(in);
	int32_t verdict;

	input_bytes(in, welcome.has_process, SIZE);
	pass(socket, &welcome, sizeof welcome, memory, input_byte(in) ^ 2);
	close(memory);
	for (int rank = 0; rank < SIZE; rank++) {
		uint8_t how = input_byte(in) ^ 1;
		if (welcome.has_process[rank])
			pass(socket, &rank, sizeof rank, -1, how);
	}
	verdict = (int8_t)input_byte(in);
	fuzz_send(socket, &verdict, sizeof verdict);
	fuzz_send(socket, in->at, in->left);
}

static void follow(struct input *in)
{
	struct window_config config = config_of(1);
	struct window *window;
	int pair[2];

	fuzz_pair(pair);
	say_all(pair[1], in);
	if (window_follow_over(&window, &config, pair[0], 1) == TUTTI_OK)
		window_destroy(window);
	close(pair[1]);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};

	fuzz_fixed_random();
	if (input_byte(&in) % 2)
		lead(&in);
	else
		follow(&in);
}
