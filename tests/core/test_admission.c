/* Breaks when connections that have proved nothing can take the descriptors that others need, or
 * make a process write without end. */
#include "core/admission.h"

#include "core/clock.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit.h"

#define MOST 64

static void open_list(struct admission *a, int most, struct admission_entry entries[MOST])
{
	memset(entries, 0, MOST * sizeof *entries);
	admission_init(a, most, 1000);
}

/* Returns how many of the entries are on the list. */
static int fill(struct admission *a, struct admission_entry *entries)
{
	while (admission_has_room(a))
		admission_add(a, &entries[a->unproved]);
	return a->unproved;
}

static void empty(struct admission *a)
{
	while (a->oldest)
		admission_remove(a, a->oldest);
	assert_int_equal(a->count + a->unproved, 0);
}

static void a_listener_has_a_bound(void **state)
{
	struct admission_entry entries[MOST];
	struct admission a;

	open_list(&a, 20, entries);
	assert_int_equal(fill(&a, entries), 20);
	admission_remove(&a, &entries[7]);
	admission_remove(&a, &entries[7]); /* it is on no list */
	assert_true(admission_has_room(&a));
	admission_add(&a, &entries[7]);
	assert_false(admission_has_room(&a));
	empty(&a);
}

/* Order and deadlines, and what a proof changes. */
static void the_oldest_goes_first(void **state)
{
	struct admission_entry e[MOST];
	struct admission a;

	open_list(&a, 20, e);
	assert_null(admission_oldest(&a, false));
	assert_int_equal(admission_due_ns(&a), DEADLINE_NONE);
	for (int i = 0; i < 3; i++) {
		admission_add(&a, &e[i]);
		e[i].deadline_ns = 100 + (uint64_t)i;
	}
	assert_ptr_equal(admission_oldest(&a, false), &e[0]);
	assert_null(admission_oldest(&a, true));
	e[0].goes_last = true;
	assert_ptr_equal(admission_oldest(&a, false), &e[1]);
	assert_ptr_equal(admission_oldest(&a, true), &e[0]);
	assert_int_equal(admission_due_ns(&a), 100);
	assert_null(admission_late(&a, 99));
	assert_ptr_equal(admission_late(&a, 100), &e[0]);
	admission_proved(&a, &e[0]);
	assert_true(e[0].deadline_ns > clock_now_ns());
	assert_null(admission_oldest(&a, true));
	assert_int_equal(a.count, 3);
	assert_int_equal(a.unproved, 2);
	assert_ptr_equal(admission_late(&a, 102), &e[1]);
	admission_remove(&a, &e[1]);
	assert_ptr_equal(admission_oldest(&a, false), &e[2]);
	admission_remove(&a, &e[2]);
	admission_add(&a, &e[2]); /* at the end again */
	assert_ptr_equal(a.oldest, &e[0]);
	empty(&a);
}

static void all_listeners_share_one(void **state)
{
	struct admission_entry entries[2][MOST];
	struct admission first, second;
	struct rlimit limit, small;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	small = limit;
	small.rlim_cur = 80;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	open_list(&first, MOST, entries[0]);
	open_list(&second, MOST, entries[1]);
	assert_int_equal(fill(&first, entries[0]), 80 / ADMISSION_SHARE);
	/* Each has its least, so that none is deaf because others are flooded. */
	assert_int_equal(fill(&second, entries[1]), ADMISSION_LEAST);
	empty(&first);
	assert_int_equal(fill(&second, entries[1]), 80 / ADMISSION_SHARE);
	/* A proof gives the place back, to the other list as well. */
	admission_proved(&second, &entries[1][0]);
	assert_true(admission_has_room(&second));
	empty(&second);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* What 10,000 dropped connections make us write, and what is in it. */
static int lines_of(char *text, size_t bytes)
{
	int log_fd = memfd_create("stderr", MFD_CLOEXEC), real = dup(STDERR_FILENO), lines = 0;
	ssize_t n;

	dup2(log_fd, STDERR_FILENO);
	log_set_level(LOG_INFO);
	for (int i = 0; i < 10000; i++)
		log_seldom("connection %d", i);
	log_set_level(LOG_OFF);
	dup2(real, STDERR_FILENO);
	n = pread(log_fd, text, bytes - 1, 0);
	text[n < 0 ? 0 : n] = '\0';
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	close(log_fd);
	close(real);
	return lines;
}

static void a_flood_is_soon_told_of(void **state)
{
	static char text[100000];
	uint64_t begun_ns = clock_now_ns(), deadline_ns, seconds;
	int lines = lines_of(text, sizeof text);

	seconds = (clock_now_ns() - begun_ns) / 1000000000u;
	assert_in_range(lines, LOG_AT_ONCE, LOG_AT_ONCE + (int)seconds + 1);
	assert_non_null(strstr(text, "tutti: connection 0\n"));
	/* When there is time for a line again it says how many had none. */
	deadline_ns = deadline_after_ms(60000);
	while (lines_of(text, sizeof text) == 0) {
		assert_true(clock_now_ns() < deadline_ns);
		usleep(1000);
	}
	assert_non_null(strstr(text, "such lines left out) connection"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_listener_has_a_bound),
		cmocka_unit_test(the_oldest_goes_first),
		cmocka_unit_test(all_listeners_share_one),
		cmocka_unit_test(a_flood_is_soon_told_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
