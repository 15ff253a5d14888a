/* Would break: a communicator that does not hear which rank of the job failed first, or hears of a
 * later one; numbers of another communicator in messages. */
#include "collectives/control/job.h"

#include <string.h>

#include "tests/unit.h"

static void keep(void *arg, int first)
{
	int *told = arg;

	assert_int_equal(*told, 0);
	*told = first;
}

static void test_first(void **state)
{
	struct job_record *job = job_new(8);
	const struct job_view view = {job, NULL};
	int before = 0, after = 0, gone = 0;
	struct job_member a = {.tell = keep, .arg = &before}, b = {.tell = keep, .arg = &after},
			  c = {.tell = keep, .arg = &gone};

	job_join(job, &a);
	job_join(job, &c);
	job_leave(job, &c);
	assert_int_equal(job_first(&view), 0);
	job_note(&view, 0);
	job_note(&view, 9);
	job_note(&view, -1);
	assert_int_equal(job_first(&view), 0);
	job_note(&view, 6);
	job_note(&view, 3);
	assert_int_equal(job_first(&view), 6);
	job_join(job, &b);
	assert_int_equal(before, 6);
	assert_int_equal(after, 6);
	assert_int_equal(gone, 0);
	job_leave(job, &a);
	job_leave(job, &b);
	job_drop(job_hold(job));
	assert_int_equal(job_first(&view), 6);
	job_drop(job);
}

static void test_words(void **state)
{
	static const int ranks[] = {4, 1, 5};
	struct job_record *job = job_new(8);
	const struct job_view view = {job, ranks}, same = {job, NULL}, none = {NULL, NULL};
	char who[JOB_WHO_BYTES], first[JOB_FIRST_BYTES];

	assert_string_equal(job_who(&view, 0, who), "rank 4 of 8, ");
	assert_string_equal(job_who(&view, 1, who), "");
	assert_string_equal(job_who(&same, 0, who), "");
	assert_string_equal(job_who(&none, 0, who), "");
	assert_string_equal(job_say_first(&view, 0, first), "");
	job_note(&view, 1 + job_number(&view, 2));
	assert_string_equal(job_say_first(&view, 0, first), "Rank 5 of 8 has failed first. ");
	assert_string_equal(job_say_first(&same, -1, first), "Rank 5 of 8 has failed first. ");
	assert_string_equal(job_say_first(&view, 2, first), ""); /* the message is about it */
	job_note(&none, 1);
	assert_string_equal(job_say_first(&none, -1, first), "");
	job_drop(job_hold(NULL));
	job_join(NULL, NULL);
	job_leave(NULL, NULL);
	job_drop(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_first),
					   cmocka_unit_test(test_words)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
