/* no_tsan: libucp is not instrumented, and its own thread shares memory with ours */
/* Would break: UCX's shared memory does not do with a container's /dev/shm, or a /dev/shm that is
 * full is told as something else, or a large job leaves it for System V's few segments. */
#include "tests/own_folder.h"
#include "tests/transport/world.h"

#include "transport/registry.h"
#include "transport/ucx/library.h"

#include "core/status.h"

/* Of ucp_worker_create, when it fails for want of memory: UCX does not free what it has by then. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libucs.so\n";
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define RANKS 8
#define BYTES 20000 /* by rendezvous */
#define DEEP  32    /* UCX_WINDOW */

static const struct conformance ucx = {.transport = &transport_ucx};
static struct world w;
static struct post sends[RANKS][RANKS][DEEP], recvs[RANKS][RANKS][DEEP];
static uint8_t out[BYTES], in[BYTES];

/* All pairs are connected, and as many messages of each wait as ever can, when it receives. */
static int all_pairs(void)
{
	world_open(&w, RANKS);
	for (int i = 0; i < RANKS * RANKS * DEEP; i++) {
		int a = i / DEEP / RANKS, b = i / DEEP % RANKS;
		if (a != b)
			post_send(&sends[a][b][i % DEEP], world_conn(&w, a, b, 0), out, BYTES, 1);
	}
	world_pump_for(&w, 100);
	for (int i = 0; i < RANKS * RANKS * DEEP; i++) {
		int a = i / DEEP / RANKS, b = i / DEEP % RANKS;
		if (a == b)
			continue;
		post_recv(&recvs[a][b][i % DEEP], world_conn(&w, a, b, 0), in, BYTES, 1);
		world_expect_ok(&w, &recvs[a][b][i % DEEP], 1);
	}
	world_close(&w);
	return 0;
}

/* Communicators that are there before the first of them connects: each finds all of /dev/shm free.
 */
static int many_communicators(void)
{
	static struct world worlds[3];

	for (int i = 0; i < 3; i++)
		world_open(&worlds[i], 3);
	for (int i = 0; i < 3; i++)
		for (int a = 0; a < 3; a++)
			for (int b = 0; b < a; b++)
				world_pair(&worlds[i], a, b, 0);
	for (int i = 0; i < 3; i++)
		world_close(&worlds[i]);
	return 0;
}

/* Connecting fails and says why. */
static int no_room(void)
{
	struct tutti_conn *conn;

	world_open(&w, 2);
	tutti_status status = transport_ucx.connect(w.endpoints[0], 1, 0, w.endpoints[1]->address,
						    w.endpoints[1]->address_bytes, &conn);
	world_close(&w);
	if (status == TUTTI_ERR_MEMORY && strstr(last_error(), "/dev/shm has 64 KiB left"))
		return 0;
	fprintf(stderr, "%s: %s\n", tutti_status_string(status), last_error());
	return 1;
}

static const char *wires_set;

static ucs_status_t note_wires(ucp_config_t *config, const char *name, const char *value)
{
	(void)config;
	if (strcmp(name, "TLS") == 0)
		wires_set = value;
	return UCS_OK;
}

static const char *wires_of(int ranks)
{
	const struct ucx_library library = {.ucp_config_modify = note_wires};

	wires_set = "all";
	ucx_configure_shm(&library, NULL, ranks);
	return wires_set;
}

/* A small job avoids /dev/shm where all its ranks might not fit; a large one, of many machines,
 * does not, since System V's segments would be too few. */
static int small_jobs_only(void)
{
	assert_string_equal(wires_of(7), "all");
	assert_string_equal(wires_of(9), "^posix");
	assert_string_equal(wires_of(32), "^posix");
	assert_string_equal(wires_of(33), "all");
	assert_string_equal(wires_of(256), "all");
	return 0;
}

/* What body returns where /dev/shm has that size, in a process of its own. */
static void run(const char *shm, const char *wires, int (*body)(void))
{
	const struct ucx_library *library;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1); /* the other cases are the parent's */
		if (wires)
			setenv("UCX_TLS", wires, 1);
		if (ucx_library(&library) != TUTTI_OK) {
			printf("%s\n", last_error());
			exit(77);
		}
		if (!own_mounts() || !own_folder("/dev/shm", shm)) {
			puts(OWN_MOUNTS_WHY);
			exit(77);
		}
		exit(body());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

static void eight_ranks_in_a_container(void **state)
{
	run("size=64m", "sm,self", all_pairs);
}

static void communicators_in_a_container(void **state)
{
	run("size=64m", "sm,self", many_communicators);
}

static void next_to_no_dev_shm(void **state)
{
	run("size=64k", NULL, all_pairs);
}

static void a_full_dev_shm(void **state)
{
	run("size=64k", "posix,self", no_room);
}

static void a_job_of_many_machines(void **state)
{
	run("size=64m", NULL, small_jobs_only);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_ranks_in_a_container),
		cmocka_unit_test(communicators_in_a_container),
		cmocka_unit_test(next_to_no_dev_shm),
		cmocka_unit_test(a_full_dev_shm),
		cmocka_unit_test(a_job_of_many_machines),
	};

	subject = &ucx;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
