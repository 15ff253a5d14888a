/* Cases of the suite: ranks in processes of their own. The parent only introduces them to each
 * other and looks at their exit statuses; every rank is a child, which says what went wrong on
 * stderr. */
#include "tests/entries.h"
#include "tests/limit.h"
#include "tests/own_folder.h"
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include "core/clock.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS 3

struct address {
	size_t bytes;
	uint8_t data[TUTTI_ADDRESS_BYTES];
};

/* A rank, in its own process. */
struct member {
	int rank, parent; /* a socket to the parent                               */
	struct tutti_endpoint *endpoint;
	struct tutti_conn *conns[MEMBERS];
};

/* All of them, in the parent. */
struct family {
	pid_t pids[MEMBERS];
	int sockets[MEMBERS];
};

#define member_check(condition, ...)                                                               \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "rank %d: %s: ", m->rank, #condition);                     \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, "\n");                                                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void member_open(struct member *m, uint64_t number)
{
	struct tutti_endpoint_config config = config_of(m->rank, MEMBERS, number, 60000);
	struct address mine = {0}, all[MEMBERS];

	member_check(subject->transport->open(&m->endpoint, &config) == TUTTI_OK, "%s",
		     last_error());
	mine.bytes = m->endpoint->address_bytes;
	memcpy(mine.data, m->endpoint->address, mine.bytes);
	member_check(write(m->parent, &mine, sizeof mine) == (ssize_t)sizeof mine, "address");
	member_check(recv(m->parent, all, sizeof all, MSG_WAITALL) == (ssize_t)sizeof all,
		     "addresses");
	for (int p = 0; p < MEMBERS; p++)
		member_check(p == m->rank || subject->transport->connect(m->endpoint, p, 0,
									 all[p].data, all[p].bytes,
									 &m->conns[p]) == TUTTI_OK,
			     "%s", last_error());
}

static void member_leave(struct member *m)
{
	for (int p = 0; p < MEMBERS; p++)
		subject->transport->close(m->conns[p]);
	subject->transport->destroy(m->endpoint);
}

static bool member_pump(struct member *m)
{
	struct tutti_done done;
	bool moved;

	tutti_done_init(&done);
	moved = subject->transport->progress(m->endpoint, &done) != 0;
	for (struct tutti_io *io; (io = tutti_done_pop(&done));)
		((struct post *)io)->is_done = true;
	if (!moved)
		sched_yield();
	return moved;
}

static void member_finish(struct member *m, const struct post *posts, int n)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);

	for (int i = 0; i < n; i++)
		while (!posts[i].is_done) {
			member_pump(m);
			member_check(clock_now_ns() < deadline, "io %d of %d never completed", i,
				     n);
		}
}

static void member_expect(struct member *m, const struct post *posts, int n, tutti_status status)
{
	member_finish(m, posts, n);
	for (int i = 0; i < n; i++)
		member_check(posts[i].io.status == status, "io %d of %d: %s (%s)", i, n,
			     tutti_status_string(posts[i].io.status), posts[i].io.conn->error);
}

static void member_send(struct member *m, struct post *post, int peer, const void *buf,
			size_t bytes)
{
	memset(post, 0, sizeof *post);
	post->io.buf = (void *)(uintptr_t)buf;
	post->io.bytes = bytes;
	subject->transport->send(m->conns[peer], &post->io);
}

static void member_recv(struct member *m, struct post *post, int peer, void *buf, size_t bytes)
{
	memset(post, 0, sizeof *post);
	post->io.buf = buf;
	post->io.bytes = bytes;
	subject->transport->recv(m->conns[peer], &post->io);
}

/* A byte to the parent; and one from it, making progress meanwhile. */
static void member_tell(struct member *m, uint8_t byte)
{
	member_check(send(m->parent, &byte, 1, MSG_NOSIGNAL) == 1, "parent is gone");
}

static uint8_t member_hear(struct member *m)
{
	uint8_t byte;

	while (recv(m->parent, &byte, 1, MSG_DONTWAIT) != 1)
		member_pump(m);
	return byte;
}

static struct family family_start(void (*rank_main)(struct member *m))
{
	static uint64_t number = 1000000;
	struct family f;
	struct address all[MEMBERS];

	number++;
	for (int r = 0; r < MEMBERS; r++) {
		int ends[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
		fflush(NULL);
		f.pids[r] = fork();
		if (f.pids[r] == 0) {
			struct member m = {.rank = r, .parent = ends[1]};
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			test_limit(2 * WORLD_TIMEOUT_MS / 1000);
			member_open(&m, number);
			rank_main(&m);
			member_leave(&m);
			_exit(0);
		}
		close(ends[1]);
		f.sockets[r] = ends[0];
	}
	for (int r = 0; r < MEMBERS; r++)
		assert_int_equal(recv(f.sockets[r], &all[r], sizeof all[r], MSG_WAITALL),
				 sizeof all[r]);
	for (int r = 0; r < MEMBERS; r++)
		assert_int_equal(write(f.sockets[r], all, sizeof all), sizeof all);
	return f;
}

static int family_reap(struct family *f, int rank)
{
	int status;

	assert_int_equal(waitpid(f->pids[rank], &status, 0), f->pids[rank]);
	close(f->sockets[rank]);
	return status;
}

static uint8_t family_hear(struct family *f, int rank)
{
	uint8_t byte = 0;

	assert_int_equal(recv(f->sockets[rank], &byte, 1, 0), 1);
	return byte;
}

/* Every rank exchanges with every other, from a byte to megabytes. */
static void exchange_main(struct member *m)
{
	static const size_t sizes[] = {1, 0, 4097, 5 << 20};
	uint8_t *out = malloc(5 << 20), *in = malloc((size_t)MEMBERS * (5 << 20));
	struct post sends[MEMBERS], recvs[MEMBERS];

	member_check(out && in, "no memory");
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		bytes_fill(out, sizes[i], (uint64_t)m->rank + 1);
		for (int p = 0; p < MEMBERS; p++) {
			if (p == m->rank)
				continue;
			member_send(m, &sends[p], p, out, sizes[i]);
			member_recv(m, &recvs[p], p, in + (size_t)p * (5 << 20), sizes[i]);
		}
		for (int p = 0; p < MEMBERS; p++) {
			if (p == m->rank)
				continue;
			member_expect(m, &recvs[p], 1, TUTTI_OK);
			member_expect(m, &sends[p], 1, TUTTI_OK);
			member_check(bytes_wrong(in + (size_t)p * (5 << 20), sizes[i],
						 (uint64_t)p + 1) < 0,
				     "from rank %d", p);
		}
	}
	free(out);
	free(in);
}

void test_processes_exchange(void **state)
{
	struct family f = family_start(exchange_main);

	for (int r = 0; r < MEMBERS; r++)
		assert_int_equal(family_reap(&f, r), 0);
}

/* Rank 1 is killed with messages half through; the others learn it and go on without it. */
static void killed_main(struct member *m)
{
	enum { N = 4 };
	const size_t bytes = (size_t)32 << 20;
	struct post sends[N], recvs[N], send, recv;
	uint8_t *out = calloc(1, bytes), *in = calloc(1, bytes);
	int other = 2 - m->rank;

	member_check(out && in, "no memory");
	for (int i = 0; i < N && m->rank != 1; i++) {
		member_send(m, &sends[i], 1, out, bytes);
		member_recv(m, &recvs[i], 1, in, bytes);
	}
	for (int p = 0; p < MEMBERS && m->rank == 1; p += 2) {
		member_send(m, &sends[p], p, out, bytes);
		member_recv(m, &recvs[p], p, in, bytes);
	}
	for (int p = 0; p < MEMBERS && m->rank == 1; p += 2)
		while (recvs[p].io.moved == 0 || sends[p].io.moved == 0)
			member_pump(m);
	if (m->rank == 1) {
		member_tell(m, 1);
		for (;;)
			pause();
	}
	/* The first of each may have got through before it died; it posted no more. */
	member_finish(m, recvs, 1);
	member_finish(m, sends, 1);
	member_expect(m, recvs + 1, N - 1, TUTTI_ERR_PEER);
	member_expect(m, sends + 1, N - 1, TUTTI_ERR_PEER);
	member_check(strstr(m->conns[1]->error, "rank 1"), "%s", m->conns[1]->error);
	member_check(m->conns[other]->status == TUTTI_OK, "%s", m->conns[other]->error);
	member_send(m, &send, other, out, 1000);
	member_recv(m, &recv, other, in, 1000);
	member_expect(m, &send, 1, TUTTI_OK);
	member_expect(m, &recv, 1, TUTTI_OK);
	/* Both have heard of it before one of them goes. */
	member_tell(m, 1);
	member_hear(m);
	free(out);
	free(in);
}

void test_process_killed(void **state)
{
	struct family f = family_start(killed_main);
	uint8_t go = 1;

	family_hear(&f, 1);
	kill(f.pids[1], SIGKILL);
	assert_true(WIFSIGNALED(family_reap(&f, 1)));
	for (int r = 0; r < MEMBERS; r += 2)
		family_hear(&f, r);
	for (int r = 0; r < MEMBERS; r += 2)
		assert_int_equal(write(f.sockets[r], &go, 1), 1);
	for (int r = 0; r < MEMBERS; r += 2)
		assert_int_equal(family_reap(&f, r), 0);
}

/* Ranks 0 and 1 are connected; rank 2 has called connect and does no more. */
static void names_main(struct member *m)
{
	uint64_t out = 1, in;
	struct post posts[2];

	if (m->rank < 2) {
		member_send(m, &posts[0], 1 - m->rank, &out, sizeof out);
		member_recv(m, &posts[1], 1 - m->rank, &in, sizeof in);
		member_expect(m, posts, 2, TUTTI_OK);
	}
	member_tell(m, 1);
	for (;;)
		pause();
}

static int count_names(const char *path)
{
	DIR *folder = opendir(path);
	int count = 0;

	for (struct dirent *e; folder && (e = readdir(folder));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			fprintf(stderr, "%s/%s is left\n", path, e->d_name);
			count++;
		}
	if (folder)
		closedir(folder);
	return count;
}

/* In a process of its own; its exit code: 1 if names are left, 77 if only TMPDIR could be looked
 * at.
 */
static int names_of_killed(void)
{
	char folder[] = "/tmp/tutti-names-XXXXXX";
	bool has_folders = own_mounts() && own_folder("/tmp", NULL) && own_folder("/dev/shm", NULL);
	struct family f;
	/* A build that lies below them stays there. */
	int count, before = has_folders ? entries_of("/tmp") + entries_of("/dev/shm") : 0;

	assert_non_null(mkdtemp(folder));
	setenv("TMPDIR", folder, 1);
	f = family_start(names_main);
	for (int r = 0; r < MEMBERS; r++)
		family_hear(&f, r);
	for (int r = 0; r < MEMBERS; r++)
		kill(f.pids[r], SIGKILL);
	for (int r = 0; r < MEMBERS; r++)
		assert_true(WIFSIGNALED(family_reap(&f, r)));
	count = count_names(folder);
	rmdir(folder);
	if (has_folders)
		count += count_names("/tmp") + count_names("/dev/shm") - before;
	return count > 0 ? 1 : has_folders ? 0 : 77;
}

/* All are killed at once, so that no rank can remove what another one has made. */
void test_killed_leave_nothing(void **state)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1); /* the other cases are the parent's */
		_exit(names_of_killed());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_because(OWN_MOUNTS_WHY);
	assert_int_equal(status, 0);
}

/* Rank 1 sends, closes and exits; what had completed then arrives although nobody was waiting for
 * it, and although rank 1 leaves unread what rank 0 sent. */
static void leaves_main(struct member *m)
{
	enum { N = 20, BYTES = 30000 };
	static uint8_t out[N][BYTES], in[BYTES];
	struct post sends[N], recv;
	uint8_t completed = 0;

	if (m->rank == 1) {
		for (uint64_t i = 0; i < N; i++) {
			bytes_fill(out[i], BYTES, i + 1);
			member_send(m, &sends[i], 0, out[i], BYTES);
		}
		for (int i = 0; i < 20000 && !sends[N - 1].is_done; i++)
			member_pump(m);
		while (completed < N && sends[completed].is_done)
			completed++;
		member_tell(m, completed);
		return;
	}
	if (m->rank == 2) {
		member_hear(m);
		return;
	}
	member_send(m, &sends[0], 1, out[0], BYTES);
	completed = member_hear(m);
	for (uint64_t i = 0; i < completed; i++) {
		member_recv(m, &recv, 1, in, BYTES);
		member_expect(m, &recv, 1, TUTTI_OK);
		member_check(bytes_wrong(in, BYTES, i + 1) < 0, "message %d", (int)i);
	}
	for (int i = 0; i <= N - completed && m->conns[1]->status == TUTTI_OK; i++) {
		member_recv(m, &recv, 1, in, BYTES);
		member_finish(m, &recv, 1);
	}
	member_check(m->conns[1]->status == TUTTI_ERR_PEER, "%d", m->conns[1]->status);
}

void test_process_leaves(void **state)
{
	struct family f = family_start(leaves_main);
	uint8_t completed = family_hear(&f, 1);

	assert_int_equal(family_reap(&f, 1), 0);
	assert_int_equal(write(f.sockets[0], &completed, 1), 1);
	assert_int_equal(family_reap(&f, 0), 0);
	assert_int_equal(write(f.sockets[2], &completed, 1), 1);
	assert_int_equal(family_reap(&f, 2), 0);
}
