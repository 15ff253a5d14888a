/* slow: 20 s */
/* Breaks when a system call that a sandbox or a firewall denies one rank (seccomp, an errno of any
 * kind) is reported as something else: a secret that differs, another program, a port that is
 * taken, a peer that has died, a deadline; or when a rank does not end. Which call, which errno and
 * which rank are random; DENIED_ALL=1 tries all, DENIED_ONLY="bind" some. */
#include "core/clock.h"
#include "tests/limit.h"
#include "tests/limits/ranks.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit.h"

#define TIMEOUT_MS 5000
#define CASES      6

/* says: how messages call it. */
static const struct denied_call {
	long number;
	const char *name, *says;
} calls[] = {
	{SYS_socket, "socket", "socket"},
	{SYS_getsockopt, "getsockopt", "getsockopt"},
	{SYS_setsockopt, "setsockopt", "setsockopt"},
	{SYS_bind, "bind", "bind"},
	{SYS_listen, "listen", "listen"},
	{SYS_connect, "connect", "connect"},
	{SYS_accept4, "accept4", "accept4"},
	{SYS_sendto, "sendto", "send"},
	{SYS_sendmsg, "sendmsg", "sendmsg"},
	{SYS_recvfrom, "recvfrom", "recv"},
	{SYS_recvmsg, "recvmsg", "recvmsg"},
	{SYS_getsockname, "getsockname", "getsockname"},
	{SYS_socketpair, "socketpair", "socket"},
	{SYS_epoll_create1, "epoll_create1", "epoll"},
	{SYS_epoll_ctl, "epoll_ctl", "epoll"},
	{SYS_poll, "poll", "poll"},
	{SYS_memfd_create, "memfd_create", "memfd_create"},
};
static const int errors[] = {EPERM, EACCES, ENOBUFS, ENOSYS};
static const struct {
	const char *name, *transports;
	bool window;
} ways[] = {{"tcp", "tcp", false}, {"shm", "shm", false}, {"a window", NULL, true}};

#define CALLS  (sizeof calls / sizeof *calls)
#define ERRORS (sizeof errors / sizeof *errors)
#define WAYS   (sizeof ways / sizeof *ways)

struct denial {
	const struct denied_call *call;
	int error, victim;
};

static void deny(int rank, void *arg)
{
	const struct denial *d = arg;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)d->call->number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)d->error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};

	if (rank != d->victim)
		return;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(1);
}

/* Where nothing is wrong with them. */
static const char *blamed(const char *error)
{
	static const char *const innocents[] = {
		"secret differ", "secrets differ",  "rank's secret", "another program",
		"another job",   "another process", "has died:",     "same version"};

	for (size_t i = 0; i < sizeof innocents / sizeof *innocents; i++)
		if (strstr(error, innocents[i]))
			return innocents[i];
	return NULL;
}

static uint64_t random_state;
static int complaints;

/* The rank that was denied the call names the call and the errno; nobody blames others. */
static void judge(const struct outcome *all, int size, const struct denial *d, const char *what)
{
	const struct outcome *victim = &all[d->victim];

	ranks_expect_decent(all, size, what);
	bool is_named = strstr(victim->job.error, d->call->says) ||
			strstr(victim->job.error, "getifaddrs"); /* which makes several calls */

	if (victim->job.where && (!is_named || !strstr(victim->job.error, strerror(d->error)))) {
		printf("%s: it does not say so: %s\n", what, victim->job.error);
		complaints++;
	}
	for (int r = 0; r < size; r++) {
		const char *innocent = all[r].job.where ? blamed(all[r].job.error) : NULL;
		if (!innocent)
			continue;
		printf("%s: rank %d blames \"%s\": %s\n", what, r, innocent, all[r].job.error);
		complaints++;
	}
	if (!victim->job.where && !ranks_all_well(all, size)) {
		printf("%s: it is well, but not all are: %s\n", what, all[1 - d->victim].job.error);
		complaints++;
	}
}

static void try_one(size_t call, size_t error, size_t way, int victim)
{
	struct denial d = {&calls[call], errors[error], victim};
	struct scene scene = {.size = 2,
			      .timeout_ms = TIMEOUT_MS,
			      .transports = ways[way].transports,
			      .window = ways[way].window,
			      .prepare = deny,
			      .arg = &d,
			      .first = true};
	const char *only = getenv("DENIED_ONLY");
	char what[160];

	snprintf(what, sizeof what, "%s of rank %d denied (%s), %s", d.call->name, victim,
		 strerror(d.error), ways[way].name);
	if (only && strncmp(what, only, strlen(only)) != 0)
		return;
	judge(ranks_run(&scene), scene.size, &d, what);
}

static void denied_calls_are_named(void **state)
{
	for (int i = 0; i < whole_or(CASES, 3, 2) && !getenv("DENIED_ALL"); i++)
		try_one(random_below(&random_state, CALLS), random_below(&random_state, ERRORS),
			random_below(&random_state, WAYS), (int)random_below(&random_state, 2));
	for (size_t i = 0; i < CALLS * WAYS * 2 && getenv("DENIED_ALL"); i++)
		try_one(i / 2 / WAYS, random_below(&random_state, ERRORS), i / 2 % WAYS,
			(int)(i % 2));
	assert_int_equal(complaints, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(denied_calls_are_named)};

	const char *given = getenv("TEST_SEED");

	random_state = given ? strtoull(given, NULL, 10) : clock_now_ns();
	printf("TEST_SEED=%" PRIu64 "\n", random_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
