/* Without this a call could get an algorithm that cannot serve it: too many ranks for direct
 * exchange, an average of integers by partial sums, another association where one was promised. */
#include "collectives/select.h"
#include "core/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *chosen(struct select select, enum collective collective, size_t count,
			  tutti_dtype dtype, tutti_op op)
{
	struct call_args args = {
		.collective = collective, .dtype = dtype, .op = op, .count = count};
	const struct algorithm *a = NULL;
	return select_algorithm(&select, &args, &a) == TUTTI_OK ? a->name : "none";
}

static void test_many_ranks(void **state)
{
	struct select s = {.size = 2000};
	(void)state;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 100000, TUTTI_F32, TUTTI_SUM), "ring");
	assert_string_equal(chosen(s, COLL_REDUCE_SCATTER, 1, TUTTI_F32, TUTTI_SUM), "ring");
	assert_string_equal(chosen(s, COLL_ALL_GATHER, 1, TUTTI_F32, TUTTI_SUM), "direct");
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_I32, TUTTI_AVG), "none");
	assert_non_null(strstr(last_error(), "1024"));
	s.deterministic = true;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "none");
}

static void test_one_association(void **state)
{
	struct select s = {.size = 5};
	(void)state;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "doubling");
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_I8, TUTTI_AVG), "direct");
	s.deterministic = true;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "direct");
	s.has_window = true;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "window");
}

static void test_forced(void **state)
{
	struct select s = {.size = 5};
	(void)state;
	assert_int_equal(select_parse(&s, "all_reduce:4-8=ring,all_reduce=window"), TUTTI_OK);
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 2, TUTTI_F32, TUTTI_SUM), "ring");
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 3, TUTTI_F32, TUTTI_SUM), "none");
	assert_non_null(strstr(last_error(), "forces window"));
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_I32, TUTTI_AVG), "none");
	assert_int_equal(select_parse(&s, "all_reduce=rong"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_redice=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:8-4=ring"), TUTTI_ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_ranks),
		cmocka_unit_test(test_one_association),
		cmocka_unit_test(test_forced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
