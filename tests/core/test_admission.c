/* Breaks when connections that have proved nothing can take the descriptors that others need, or
 * make a process write without end. */
#include "core/admission.h"

#include "core/clock.h"
#include "core/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static int enter_all(int mine, int most)
{
	while (admission_enter(mine, most))
		mine++;
	return mine;
}

static void leave_all(int n)
{
	while (n-- > 0)
		admission_leave();
}

static void a_listener_has_a_bound(void **state)
{
	int n = enter_all(0, 20);

	(void)state;
	assert_int_equal(n, 20);
	admission_leave();
	assert_true(admission_enter(19, 20));
	assert_false(admission_enter(20, 20));
	leave_all(20);
}

static void all_listeners_share_one(void **state)
{
	struct rlimit limit, small;
	int first, second;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	small = limit;
	small.rlim_cur = 80;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	first = enter_all(0, 64);
	assert_int_equal(first, 80 / ADMISSION_SHARE);
	/* Each has its least, so that none is deaf because others are oversubscribed. */
	second = enter_all(0, 64);
	assert_int_equal(second, ADMISSION_LEAST);
	leave_all(first);
	assert_int_equal(enter_all(second, 64), 80 / ADMISSION_SHARE);
	leave_all(80 / ADMISSION_SHARE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* What 10,000 strangers make us write, and what is in it. */
static int lines_of(char *text, size_t bytes)
{
	int log_fd = memfd_create("stderr", MFD_CLOEXEC), real = dup(STDERR_FILENO), lines = 0;
	ssize_t n;

	dup2(log_fd, STDERR_FILENO);
	log_set_level(LOG_INFO);
	for (int i = 0; i < 10000; i++)
		log_seldom("stranger %d", i);
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

static void a_crowd_is_soon_told_of(void **state)
{
	static char text[100000];
	uint64_t begun_ns = clock_now_ns(), deadline_ns, seconds;
	int lines = lines_of(text, sizeof text);

	(void)state;
	seconds = (clock_now_ns() - begun_ns) / 1000000000u;
	assert_in_range(lines, LOG_AT_ONCE, LOG_AT_ONCE + (int)seconds + 1);
	assert_non_null(strstr(text, "tutti: stranger 0\n"));
	/* When there is time for a line again it says how many had none. */
	deadline_ns = deadline_after_ms(60000);
	while (lines_of(text, sizeof text) == 0) {
		assert_true(clock_now_ns() < deadline_ns);
		usleep(1000);
	}
	assert_non_null(strstr(text, "such lines left out) stranger"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_listener_has_a_bound),
		cmocka_unit_test(all_listeners_share_one),
		cmocka_unit_test(a_crowd_is_soon_told_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
