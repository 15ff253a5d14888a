/* Would break: pending connections that disturb others, a damaged peer that makes its neighbour
 * fail, a sleeping rank that is not woken, memory that depends on /dev/shm or stays behind. (What
 * all transports have in common: test_shm.c.) */
#include "tests/limit.h"
#include "tests/own_folder.h"
#include "tests/transport/world.h"

#include "transport/shm/shm.h"

#include "core/clock.h"
#include "core/net.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shm_conn *conn_of(struct world *w, int rank, int peer)
{
	return (struct shm_conn *)world_conn(w, rank, peer, 0);
}

static struct shm_endpoint *end(struct world *w, int rank)
{
	return (struct shm_endpoint *)w->endpoints[rank];
}

/* One message each way, to show that all is well. */
static void expect_exchange(struct world *w, int a, int b)
{
	struct post posts[4];
	uint8_t out[2] = {7, 8}, in[2] = {0, 0};

	world_pair(w, a, b, 0);
	for (int i = 0; i < 2; i++) {
		int from = i ? b : a, to = i ? a : b;
		post_recv(&posts[2 * i], w->conns[to][from][0], &in[i], 1, 3);
		post_send(&posts[2 * i + 1], w->conns[from][to][0], &out[i], 1, 3);
	}
	world_expect_ok(w, posts, 4);
	assert_memory_equal(in, out, 2);
}

static void expect_lost(struct world *w, int rank, struct post *post)
{
	world_finish(w, post, 1);
	assert_int_equal(post->io.status, TUTTI_ERR_PEER);
	assert_int_equal(w->conns[rank][1 - rank][0]->status, TUTTI_ERR_PEER);
}

/* One end's socket breaks before the other end connects, and its conn is closed: then that one
 * fails, too, and does not wait for one that will not come again. */
static void test_failed_before_connect(void **state)
{
	for (int rank = 0; rank < 2; rank++) {
		struct world w;
		struct post first, second;
		uint8_t byte = 0;
		world_open(&w, 2);
		post_recv(&first, world_conn(&w, rank, 1 - rank, 0), &byte, 1, 3);
		assert_int_equal(shutdown(conn_of(&w, rank, 1 - rank)->watch.fd, SHUT_RDWR), 0);
		while (w.conns[rank][1 - rank][0]->status == TUTTI_OK)
			world_pump_only(&w, rank, 1);
		world_hang_up(&w, rank, 1 - rank, 0);
		post_recv(&second, world_conn(&w, 1 - rank, rank, 0), &byte, 1, 3);
		expect_lost(&w, 1 - rank, &second);
		world_close(&w);
	}
}

/* The lower rank has been heard and waits for the rings. It breaks while it is still pending. */
static void test_rings_break_while_pending(void **state)
{
	struct world w;
	struct post posts[2];
	uint8_t byte = 0;
	int fd;

	world_open(&w, 2);
	post_recv(&posts[0], world_conn(&w, 0, 1, 0), &byte, 1, 3);
	while (!conn_of(&w, 0, 1)->is_settled)
		world_pump(&w);
	post_recv(&posts[1], world_conn(&w, 1, 0, 0), &byte, 1, 3);
	fd = accept(end(&w, 0)->listener.fd, NULL, NULL);
	assert_true(fd >= 0);
	close(fd);
	expect_lost(&w, 1, &posts[1]);
	expect_lost(&w, 0, &posts[0]);
	world_close(&w);
}

static int dial_raw(struct world *w, int rank)
{
	struct tutti_endpoint *endpoint = w->endpoints[rank];
	char name[40];
	int fd;

	assert_true(shm_address_read(endpoint, endpoint->address, endpoint->address_bytes, name));
	assert_int_equal(net_unix_connect(name, &fd), TUTTI_OK);
	return fd;
}

static struct shm_hello good_hello(struct world *w, int from, int to)
{
	return (struct shm_hello){
		.magic = SHM_MAGIC,
		.purpose = from > to ? SHM_RINGS : SHM_AWAIT,
		.from = from,
		.to = to,
		.comm_id = {w->configs[to].comm_id[0], w->configs[to].comm_id[1]},
		.ring_bytes = SHM_RING_BYTES,
	};
}

static int loose_memory(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)ring_pair_bytes(SHM_RING_BYTES)), 0);
	return fd;
}

static void send_wrong_hellos(struct world *w, int *fds)
{
	struct shm_hello hellos[11];
	int memory[2] = {loose_memory(), loose_memory()};

	for (int i = 0; i < 11; i++)
		hellos[i] = good_hello(w, 1, 0);
	hellos[0].magic++;
	hellos[1].comm_id[1]++;
	hellos[2].to = 1;
	hellos[3].from = 0;
	hellos[4].from = -1;
	hellos[5].from = 1000000;
	hellos[6].purpose = SHM_AWAIT;
	hellos[7].purpose = 77;
	hellos[8].ring_bytes = 1ull << 60;
	/* hellos[9] and [10] are right, but the memory can shrink, or there are two */
	for (int i = 0; i < 11; i++) {
		fds[i] = dial_raw(w, 0);
		assert_int_equal(net_send_fds(fds[i], &hellos[i], sizeof hellos[i], memory,
					      i == 10 ? 2 : 1, 0),
				 TUTTI_OK);
	}
	fds[11] = dial_raw(w, 0); /* rings without memory */
	assert_int_equal(net_send_all(fds[11], &hellos[9], sizeof hellos[9], 0), TUTTI_OK);
	fds[12] = dial_raw(w, 0); /* half a hello */
	assert_int_equal(net_send_all(fds[12], &hellos[9], 20, 0), TUTTI_OK);
	fds[13] = dial_raw(w, 0);
	assert_int_equal(net_send_all(fds[13], "GET / HTTP/1.0\r\n\r\n", 18, 0), TUTTI_OK);
	close(memory[0]);
	close(memory[1]);
}

static void expect_hung_up(int fd)
{
	char byte;

	assert_int_equal(net_recv_all(fd, &byte, 1, 0), TUTTI_ERR_PEER);
	close(fd);
}

static void test_pending_connections(void **state)
{
	enum { WRONG = 14, SILENT = 2 * SHM_PENDING };
	struct world w;
	int wrong[WRONG], silent[SILENT];

	for (int is_before = 0; is_before < 2; is_before++) {
		world_open(&w, 3);
		uint64_t begun_ns = clock_now_ns();
		if (is_before)
			expect_exchange(&w, 0, 1);
		for (int i = 0; i < SILENT; i++)
			silent[i] = dial_raw(&w, 0);
		send_wrong_hellos(&w, wrong);
		expect_exchange(&w, 0, 2);
		expect_exchange(&w, 0, 1);
		world_pump_for(&w, 40 * SHM_LOOK_PASSES);
		for (int i = 0; i < WRONG; i++)
			expect_hung_up(wrong[i]);
		int pending = end(&w, 0)->pending.count; /* bounded, and not for ever */
		bool was_quick = clock_now_ns() - begun_ns < SHM_PENDING_MS * UINT64_C(1000000);
		assert_true((pending > 0 || !was_quick) && pending <= SHM_PENDING);
		for (struct shm_accepted *g = end(&w, 0)->accepted; g; g = g->next)
			g->pending.deadline_ns = 0;
		world_pump_for(&w, 2 * SHM_LOOK_PASSES);
		assert_int_equal(end(&w, 0)->pending.count, 0);
		for (int i = 0; i < SILENT; i++)
			expect_hung_up(silent[i]);
		world_close(&w);
	}
}

/* Even one who knows the whole hello. */
static void test_other_user(void **state)
{
	struct world w;
	int status;

	if (geteuid() != 0)
		skip_because("becoming another user needs root");
	world_open(&w, 2);
	pid_t pid = fork();
	if (pid == 0) {
		struct shm_hello hello = good_hello(&w, 1, 0);
		struct shared_memory *segment;
		int memory, fd;
		char byte;
		test_limit(20);
		if (setuid(65534) < 0 ||
		    ring_pair_create(&segment, SHM_RING_BYTES, &memory) != TUTTI_OK)
			_exit(2);
		fd = dial_raw(&w, 0);
		net_send_fds(fd, &hello, sizeof hello, &memory, 1, 0);
		_exit(net_recv_all(fd, &byte, 1, UINT64_MAX) == TUTTI_ERR_PEER ? 0 : 1);
	}
	while (waitpid(pid, &status, WNOHANG) == 0)
		world_pump(&w);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(end(&w, 0)->accepted_count, 0);
	expect_exchange(&w, 0, 1);
	world_close(&w);
}

static void expect_damaged(struct world *w, struct post *post)
{
	world_finish(w, post, 1);
	assert_int_equal(post->io.status, TUTTI_ERR_PEER);
	assert_non_null(strstr(w->conns[0][1][0]->error, "rank 1"));
	assert_non_null(strstr(w->conns[0][1][0]->error, "damaged"));
	expect_exchange(w, 0, 2); /* and nobody else is disturbed */
	world_close(w);
}

static void test_damaged_memory(void **state)
{
	const size_t bytes = 4 * SHM_RING_BYTES;
	struct world w;
	struct post post;
	uint8_t *buf = calloc(1, bytes);

	world_open(&w, 3);
	expect_exchange(&w, 0, 1);
	atomic_store(&conn_of(&w, 1, 0)->out.shared->written, UINT64_MAX - 7);
	post_recv(&post, w.conns[0][1][0], buf, 8, 1);
	expect_damaged(&w, &post);

	world_open(&w, 3);
	expect_exchange(&w, 0, 1);
	atomic_store(&conn_of(&w, 1, 0)->in.shared->read, 1ull << 40);
	post_send(&post, w.conns[0][1][0], buf, bytes, 1);
	expect_damaged(&w, &post);

	world_open(&w, 3);
	expect_exchange(&w, 0, 1);
	conn_of(&w, 1, 0)->sent += 5; /* it has lost count of its messages */
	struct post sent;
	post_send(&sent, w.conns[1][0][0], buf, 8, 1);
	post_recv(&post, w.conns[0][1][0], buf, 8, 1);
	expect_damaged(&w, &post);
	free(buf);
}

static bool is_readable(struct world *w, int rank)
{
	struct pollfd fd = {.fd = transport_shm.event_fd(w->endpoints[rank]), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static void settle_down(struct world *w, int rank)
{
	world_pump_for(w, 3 * SHM_LOOK_PASSES);
	assert_int_equal(transport_shm.arm(w->endpoints[rank]), 0);
	assert_false(is_readable(w, rank));
}

/* How many bytes wait at the socket of rank's conn to peer. */
static int doorbells(struct world *w, int rank, int peer)
{
	int n = 0;

	assert_int_equal(ioctl(conn_of(w, rank, peer)->watch.fd, FIONREAD, &n), 0);
	return n;
}

static void test_sleeping(void **state)
{
	struct world w;
	struct post send, recv, later;
	uint8_t out = 4, in = 0;

	world_open(&w, 3);
	expect_exchange(&w, 0, 1);

	/* A message that nobody has asked for is no work; asking for it is, from whichever thread.
	 */
	settle_down(&w, 0);
	post_send(&send, w.conns[1][0][0], &out, 1, 1);
	assert_false(is_readable(&w, 0));
	assert_int_equal(transport_shm.arm(w.endpoints[0]), 0);
	post_recv(&recv, w.conns[0][1][0], &in, 1, 1);
	assert_true(is_readable(&w, 0));
	world_expect_ok(&w, &recv, 1);

	/* So is a send that has ended, and a connection that somebody begins. */
	settle_down(&w, 0);
	post_send(&send, w.conns[0][1][0], &out, 1, 1);
	assert_true(is_readable(&w, 0));
	post_recv(&recv, w.conns[1][0][0], &in, 1, 1);
	world_expect_ok(&w, &recv, 1);
	settle_down(&w, 0);
	world_conn(&w, 2, 0, 0);
	assert_true(is_readable(&w, 0));

	/* One doorbell a sleep, however much is sent. */
	settle_down(&w, 0);
	post_recv(&recv, w.conns[0][1][0], &in, 1, 1);
	world_pump_for(&w, 3);
	assert_int_equal(transport_shm.arm(w.endpoints[0]), 0);
	post_send(&send, w.conns[1][0][0], &out, 1, 1);
	assert_true(is_readable(&w, 0));
	post_send(&later, w.conns[1][0][0], &out, 1, 1);
	assert_int_equal(doorbells(&w, 0, 1), 1);
	world_expect_ok(&w, &recv, 1);
	world_close(&w);
}

/* A deadline wakes a sleeper as well: here nothing else ever does, for the peer is stopped. */
static void test_deadline_wakes(void **state)
{
	struct world w;

	for (int rank = 0; rank < 2; rank++) {
		struct post recv;
		uint8_t byte;
		world_open_with(&w, 2, 100);
		post_recv(&recv, world_conn(&w, rank, 1 - rank, 0), &byte, 1, 1);
		while (!recv.is_done) {
			struct pollfd fd = {.fd = transport_shm.event_fd(w.endpoints[rank]),
					    .events = POLLIN};
			if (!transport_shm.arm(w.endpoints[rank]))
				assert_int_equal(poll(&fd, 1, WORLD_TIMEOUT_MS), 1);
			world_pump_only(&w, rank, 1);
		}
		assert_int_equal(recv.io.status, TUTTI_ERR_TIMEOUT);
		world_close(&w);
	}
}

static int count_lines(const char *path, const char *text)
{
	FILE *file = fopen(path, "r");
	char line[4096];
	int n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		n += strstr(line, text) != NULL;
	fclose(file);
	return n;
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_nothing_stays(void **state)
{
	struct world w;
	int fds = count_fds();

	world_open(&w, 8);
	assert_true(count_lines("/proc/net/unix", "@tutti-") >= 8);
	for (int a = 0; a < 8; a++)
		for (int b = 0; b < a; b++)
			expect_exchange(&w, a, b);
	world_pump_for(&w, 3 * SHM_LOOK_PASSES);
	/* Both ends are in this process: one mapping for both. */
	assert_int_equal(count_lines("/proc/self/maps", "memfd:tutti-shm"), 28);
	assert_true(count_fds() <= fds + 3 * 8 + 2 * 28);
	world_close(&w);
	assert_int_equal(count_lines("/proc/self/maps", "memfd:tutti-shm"), 0);
	assert_int_equal(count_fds(), fds); /* so no name either: it ends with its socket */
}

/* Rank 1, in a process that never ends by itself. */
static void send_for_ever(const struct tutti_endpoint *parent, int pipe)
{
	const size_t bytes = 8 * SHM_RING_BYTES;
	struct tutti_endpoint_config config = config_of(1, 2, 77, WORLD_TIMEOUT_MS);
	struct tutti_endpoint *mine;
	struct tutti_conn *conn;
	struct tutti_done done;
	struct post posts[2];
	uint8_t *buf = calloc(1, bytes);

	test_limit(60);
	if (transport_shm.open(&mine, &config) != TUTTI_OK ||
	    write(pipe, mine, sizeof *mine) != (ssize_t)sizeof *mine ||
	    transport_shm.connect(mine, 0, 0, parent->address, parent->address_bytes, &conn) !=
		    TUTTI_OK)
		_exit(1);
	post_send(&posts[0], conn, buf, 1, 1);
	post_send(&posts[1], conn, buf, bytes, 1);
	for (;;) {
		tutti_done_init(&done);
		transport_shm.progress(mine, &done);
	}
}

/* What the killed one had sent completely still arrives; then its death is told, and nothing of it
 * is left on the machine. */
static void test_killed(void **state)
{
	const size_t bytes = 8 * SHM_RING_BYTES;
	struct world w = {.size = 1};
	struct tutti_endpoint child;
	struct post first, second;
	uint8_t *buf = calloc(1, bytes);
	char name[48] = "@";
	int fds[2], status;

	w.configs[0] = config_of(0, 2, 77, WORLD_TIMEOUT_MS);
	assert_int_equal(transport_shm.open(&w.endpoints[0], &w.configs[0]), TUTTI_OK);
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0)
		send_for_ever(w.endpoints[0], fds[1]);
	assert_int_equal(read(fds[0], &child, sizeof child), sizeof child);
	assert_int_equal(transport_shm.connect(w.endpoints[0], 1, 0, child.address,
					       child.address_bytes, &w.conns[0][1][0]),
			 TUTTI_OK);
	assert_true(shm_address_read(w.endpoints[0], child.address, child.address_bytes, name + 1));
	assert_true(count_lines("/proc/net/unix", name) > 0);
	/* The second message is in flight when its sender dies. */
	while (!conn_of(&w, 0, 1)->rings ||
	       byte_ring_available(&conn_of(&w, 0, 1)->in, SHM_RING_BYTES / 2) < SHM_RING_BYTES / 2)
		world_pump(&w);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	post_recv(&first, w.conns[0][1][0], buf, 1, 1);
	post_recv(&second, w.conns[0][1][0], buf, bytes, 1);
	world_finish(&w, &second, 1);
	assert_int_equal(first.io.status, TUTTI_OK);
	assert_int_equal(second.io.status, TUTTI_ERR_PEER);
	assert_non_null(strstr(w.conns[0][1][0]->error, "rank 1"));
	assert_int_equal(count_lines("/proc/net/unix", name), 0);
	transport_shm.close(w.conns[0][1][0]);
	assert_int_equal(count_lines("/proc/self/maps", "memfd:tutti-shm"), 0);
	transport_shm.destroy(w.endpoints[0]);
	close(fds[0]);
	close(fds[1]);
	free(buf);
}

/* All pairs of 8 ranks fill their rings where /dev/shm has 1 MiB. 77: no such place can be made. */
static int with_small_dev_shm(void)
{
	enum { N = 8 };
	static uint8_t buf[SHM_RING_BYTES];
	static struct post sends[N][N], recvs[N][N];
	struct world w;

	if (!own_mounts() || !own_folder("/dev/shm", "size=1m"))
		return 77;
	world_open(&w, N);
	for (int a = 0; a < N; a++)
		for (int b = 0; b < N; b++)
			if (a != b)
				post_send(&sends[a][b], world_conn(&w, a, b, 0), buf, sizeof buf,
					  1);
	for (int a = 0; a < N; a++)
		for (int b = 0; b < N; b++)
			if (a != b)
				post_recv(&recvs[a][b], w.conns[a][b][0], buf, sizeof buf, 1);
	for (int a = 0; a < N; a++)
		for (int b = 0; b < N; b++)
			if (a != b)
				world_expect_ok(&w, &recvs[a][b], 1);
	world_close(&w);
	return 0;
}

static void test_small_dev_shm(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(with_small_dev_shm());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because(OWN_MOUNTS_WHY);
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* What the rings of a rank may take does not grow with the world, but for 32 KiB a conn. */
static void test_budget(void **state)
{
	for (int size = 2; size <= 4096; size *= 2) {
		struct tutti_endpoint_config config = config_of(0, size, 5, 1000);
		struct tutti_endpoint *endpoint;
		assert_int_equal(transport_shm.open(&endpoint, &config), TUTTI_OK);
		size_t ring = ((struct shm_endpoint *)endpoint)->ring_bytes;
		assert_true(ring >= RING_BYTES_MIN && ring <= SHM_RING_BYTES);
		assert_true(ring == RING_BYTES_MIN || 2 * ring * (size_t)size <= SHM_RINGS_BYTES);
		transport_shm.destroy(endpoint);
	}
}

int main(void)
{
	static const struct conformance shm = {.transport = &transport_shm};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_before_connect),
		cmocka_unit_test(test_rings_break_while_pending),
		cmocka_unit_test(test_pending_connections),
		cmocka_unit_test(test_other_user),
		cmocka_unit_test(test_damaged_memory),
		cmocka_unit_test(test_sleeping),
		cmocka_unit_test(test_deadline_wakes),
		cmocka_unit_test(test_nothing_stays),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_small_dev_shm),
		cmocka_unit_test(test_budget),
	};

	subject = &shm;
	test_seed = 1;
	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
