/* Would break: a split whose child's ranks cannot meet in time. The rank that says so is named
 * once, by the number that the parent's ranks know it by and by its number in the child; and while
 * it waits it says for whom. */
#include "split_team.h"

#include "core/clock.h"
#include "core/long_wait.h"
#include "tests/limit.h"

#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define SIZE  4
#define EARLY 1 /* of the parent: the others begin when it has given up */

#define TRIES 500 /* of 20 ms: a rank that is waiting in one of them says so */

static atomic_bool has_given_up;
static _Thread_local bool is_connecting;
static char said[600]; /* by the early rank */

tutti_status __real_comm_start(struct tutti_comm *comm);
tutti_status __wrap_comm_start(struct tutti_comm *comm);
tutti_status __real_comm_connect(struct tutti_comm *comm, uint64_t deadline_ns,
				 bool (*is_over)(void *arg), void *arg);
tutti_status __wrap_comm_connect(struct tutti_comm *comm, uint64_t deadline_ns,
				 bool (*is_over)(void *arg), void *arg);

bool __real_long_wait_is_due(struct long_wait *wait, uint64_t now_ns);
bool __wrap_long_wait_is_due(struct long_wait *wait, uint64_t now_ns);
void __wrap_long_wait_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool __wrap_long_wait_is_due(struct long_wait *wait, uint64_t now_ns)
{
	return is_connecting || __real_long_wait_is_due(wait, now_ns);
}

void __wrap_long_wait_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (is_connecting)
		vsnprintf(said, sizeof said, format, args);
	va_end(args);
}

static bool is_late(const struct tutti_comm *comm)
{
	return comm->parent.ranks && comm->parent.ranks[comm->rank] != EARLY;
}

tutti_status __wrap_comm_start(struct tutti_comm *comm)
{
	uint64_t deadline_ns = deadline_after_ms(60000);

	while (is_late(comm) && !atomic_load(&has_given_up) && clock_now_ns() < deadline_ns)
		sched_yield();
	return __real_comm_start(comm);
}

/* Soon in a child; the team's own connections have all the time they need. */
tutti_status __wrap_comm_connect(struct tutti_comm *comm, uint64_t deadline_ns,
				 bool (*is_over)(void *arg), void *arg)
{
	tutti_status status;

	if (!comm->parent.ranks)
		return __real_comm_connect(comm, deadline_ns, is_over, arg);
	is_connecting = !is_late(comm);
	status = __real_comm_connect(comm, deadline_after_ms(20), is_over, arg);
	for (int i = 1; is_connecting && !said[0] && i < TRIES; i++)
		status = __real_comm_connect(comm, deadline_after_ms(20), is_over, arg);
	if (is_connecting)
		atomic_store(&has_given_up, true);
	is_connecting = false;
	return status;
}

/* All but the first, backwards: rank 1 is 2 in the child. */
static void split_alone(struct rank *r)
{
	tutti_comm *child = NULL;

	keep(r, tutti_comm_split(r->comm, r->me ? 0 : -1, -r->me, NULL, &child));
	EXPECT(r, !child, "a child");
	EXPECT_OK(r, tutti_barrier(r->comm, NULL));
}

static void test_nobody_comes(void **state)
{
	static const char *const words[] = {
		": rank 1 (2 of 3 in its child) was not connected to its neighbours in time", NULL};
	char first[60], second[60];
	struct team team;

	/* Over tcp, as a window needs no connections. */
	with_team(&team, SIZE, &wires[2], split_alone);
	check_verdict(&team, TUTTI_ERR_TIMEOUT, words);
	snprintf(first, sizeof first, "rank 1 (process %d on ", (int)getpid());
	snprintf(second, sizeof second, "), rank 0 (process %d on ", (int)getpid());
	if (strncmp(said, first, strlen(first)) != 0 || !strstr(said, second) ||
	    !strstr(said, ") to connect in a communicator of 3"))
		fail_msg("the rank that waits said '%s'", said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_comes),
	};
	test_limit(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
