/* Without this a call could get an algorithm that cannot serve it: too many ranks for direct
 * exchange, an average of integers by partial sums, another association where one was promised. */
#include "collectives/select/select.h"
#include "core/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit.h"

static const char *chosen(struct select select, enum collective collective, size_t count,
			  tutti_dtype dtype, tutti_op op)
{
	struct call_args args = {
		.collective = collective, .dtype = dtype, .op = op, .count = count};
	const struct algorithm *a = NULL;
	struct links links = links_default();
	select_prepare(&select, &links);
	return select_algorithm(&select, &args, &a) == TUTTI_OK ? a->name : "none";
}

static void test_many_ranks(void **state)
{
	struct select s = {.size = 2000};
	for (size_t count = 1; count < 1 << 30; count *= 8) {
		assert_string_not_equal(chosen(s, COLL_ALL_REDUCE, count, TUTTI_F32, TUTTI_SUM),
					"direct");
		assert_string_not_equal(chosen(s, COLL_REDUCE_SCATTER, count, TUTTI_F32, TUTTI_SUM),
					"direct");
	}
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_I32, TUTTI_AVG), "none");
	assert_non_null(strstr(last_error(), "1024"));
	s.deterministic = true; /* two at a time, in that association: where nothing is rounded */
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "knomial");
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_BF16, TUTTI_SUM), "none");
}

static void test_one_association(void **state)
{
	struct select s = {.size = 5};
	assert_string_not_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "none");
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_I8, TUTTI_AVG), "direct");
	s.deterministic = true;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "direct");
	s.has_window = true;
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_F32, TUTTI_SUM), "window");
}

/* The cheapest by the links' speeds, which are the same on all ranks. */
static void test_links_decide(void **state)
{
	struct select s = {.size = 8};
	struct call_args args = {.collective = COLL_ALL_REDUCE, .dtype = TUTTI_F32, .count = 2};
	struct links links = {.link = {{1e-3, 1e-3, 1e-9}, {1e-3, 1e-3, 1e-9}}, .gamma = 1e-12};
	const struct algorithm *a;
	double least = 1e9;

	select_prepare(&s, &links); /* slow to start: the fewest messages */
	assert_int_equal(select_algorithm(&s, &args, &a), TUTTI_OK);
	struct cost c = a->cost((struct topology){8, 1});
	assert_true(c.link[LINK_LOCAL].rounds <= 3 && c.link[LINK_LOCAL].messages <= 3);
	links.link[LINK_LOCAL] = (struct link_speed){1e-9, 1e-9, 1e-6};
	select_prepare(&s, &links); /* slow to carry: the fewest bytes */
	args.count = 1 << 20;
	assert_int_equal(select_algorithm(&s, &args, &a), TUTTI_OK);
	assert_true(a->cost((struct topology){8, 1}).link[LINK_LOCAL].bytes < 1.76);
	for (int i = 0; algorithm_at(i); i++) {
		const struct algorithm *b = algorithm_at(i);
		if (b->collective != COLL_ALL_REDUCE || select_why_not(&s, b, &args))
			continue;
		double seconds = select_seconds(&s, b, 4 << 20);
		least = seconds < least ? seconds : least;
	}
	assert_true(select_seconds(&s, a, 4 << 20) <= least);
}

static void assert_cheapest(int size, double cores, enum collective collective, size_t bytes,
			    const char *name)
{
	struct select s = {.size = size};
	struct links links = {
		.link = {{1e-5, 1e-5, 5e-10}, {1e-5, 1e-5, 5e-10}}, .gamma = 3e-11, .cores = cores};
	struct call_args args = {.collective = collective, .dtype = TUTTI_I8, .count = bytes};
	const struct algorithm *a;

	select_prepare(&s, &links);
	assert_int_equal(select_algorithm(&s, &args, &a), TUTTI_OK);
	assert_string_equal(a->name, name);
}

/* Where ranks share cores the messages of all count, and those of the busiest; with a core each,
 * rounds do. */
static void test_shared_cores(void **state)
{
	assert_cheapest(8, 0, COLL_ALL_REDUCE, 4, "doubling");
	assert_cheapest(8, 8, COLL_ALL_REDUCE, 4, "doubling");
	assert_cheapest(8, 8, COLL_BARRIER, 0, "doubling");
	assert_cheapest(8, 8, COLL_ALL_GATHER, 4, "circulant");
	for (int size = 4; size <= 8; size++) {
		assert_cheapest(size, 2, COLL_ALL_REDUCE, 4, "star");
		assert_cheapest(size, 2, COLL_BARRIER, 0, "knomial");
		assert_cheapest(size, 2, COLL_ALL_GATHER, 4, "knomial");
	}
	assert_cheapest(8, 2, COLL_REDUCE_SCATTER, 4, "knomial");
	assert_cheapest(8, 2, COLL_ALL_TO_ALL, 4, "knomial");
	assert_cheapest(8, 2, COLL_REDUCE, 4, "direct");
	assert_cheapest(8, 2, COLL_SCATTER, 4, "knomial");
}

/* One way ranks run ahead: the root's messages count, rounds hardly. */
static void test_one_way(void **state)
{
	assert_cheapest(4, 2, COLL_BROADCAST, 4, "ring");
	assert_cheapest(8, 2, COLL_BROADCAST, 4, "doubling");
	assert_cheapest(8, 8, COLL_BROADCAST, 4, "knomial");
}

/* Whether rank 0 of 8, the root, only sends or only receives. */
static bool goes_one_way(const struct algorithm *a, const struct nodes *nodes)
{
	struct plan_key key = {.size = 8, .nodes = nodes};
	struct plan *p = algorithm_plan(a, &key);
	bool sends = false, receives = false;

	for (uint32_t i = 0; i < p->lane_count; i++) {
		sends |= p->lanes[i].sends;
		receives |= p->lanes[i].peer >= 0 && !p->lanes[i].sends;
	}
	plan_free(p);
	return !(sends && receives);
}

/* A cost that lacks is_one_way, or has it by mistake, is wrong where ranks share cores. */
static void test_one_way_is_said(void **state)
{
	for (int i = 0; algorithm_at(i); i++) {
		const struct algorithm *a = algorithm_at(i);
		struct nodes two = nodes_in_order(8, 2);
		bool on_nodes = a->needs & NEEDS_NODES;
		if (!a->build)
			continue;
		bool expected = collective_has_root(a->collective) &&
				goes_one_way(a, on_nodes ? &two : NULL);
		if (a->cost((struct topology){8, on_nodes ? 2 : 1}).is_one_way != expected)
			fail_msg("the cost of %s %s must have is_one_way %s: its root %s", a->name,
				 collective_name(a->collective), expected ? "true" : "false",
				 expected ? "only sends or only receives"
					  : "sends and receives, or there is none");
	}
}

/* Long ones on shared cores: a sum of all at once reads less than many of two, and a block that
 * goes from rank to rank costs more work than one that goes straight. */
static void test_long_on_shared_cores(void **state)
{
	for (int size = 4; size <= 8; size += 4) {
		assert_cheapest(size, 2, COLL_REDUCE_SCATTER, 1 << 20, "direct");
		assert_cheapest(size, 2, COLL_SCATTER, 1 << 20, "direct");
		assert_cheapest(size, 2, COLL_ALL_TO_ALL, 32 << 10, "direct");
	}
	assert_cheapest(4, 2, COLL_BROADCAST, 4 << 20, "ring");
}

/* One rank holds the blocks of all ranks for all ranks. */
static void test_few_ranks(void **state)
{
	struct select s = {.size = 32};
	struct call_args args = {.collective = COLL_ALL_TO_ALL, .dtype = TUTTI_I8, .count = 1};
	const struct algorithm *a = algorithm_find(COLL_ALL_TO_ALL, "knomial");

	assert_null(select_why_not(&s, a, &args));
	s.size = 33;
	assert_non_null(strstr(select_why_not(&s, a, &args), "32 ranks"));
	assert_cheapest(33, 2, COLL_ALL_TO_ALL, 1, "bruck");
}

/* Sends of all ranks' plans, and of the rank that has the most. */
static void count_sends(const struct algorithm *a, int size, double *all, double *most)
{
	*all = *most = 0;
	for (int rank = 0; rank < size; rank++) {
		struct plan_key key = {.rank = rank, .size = size, .in_place = true};
		struct plan *p = algorithm_plan(a, &key);
		double sends = 0;
		assert_non_null(p);
		for (uint32_t i = 0; i < p->count; i++)
			sends += p->steps[i].kind == STEP_SEND;
		plan_free(p);
		*all += sends;
		*most = sends > *most ? sends : *most;
	}
}

/* What costs say of all ranks' messages is what the plans send. */
static void test_means(void **state)
{
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 2; size <= 33; size++) {
			const struct algorithm *a = algorithm_at(i);
			double all, most;
			if (!a->cost || (a->needs & NEEDS_NODES))
				continue;
			struct cost c = a->cost((struct topology){size, 1});
			count_sends(a, size, &all, &most);
			if (c.mean.messages > 0)
				assert_true(fabs(c.mean.messages * size - all) < 1e-6);
			else
				assert_true(all <= c.link[LINK_LOCAL].messages * size + 1e-6);
			assert_true(c.busiest.messages + 1e-6 >= most || c.mean.messages <= 0);
		}
}

/* What is no file of links is as if it were not there: nothing hangs on it. */
static void test_links_file(void **state)
{
	char folder[] = "/tmp/tutti_links_XXXXXX", path[64], pipe[64], nowhere[64];
	struct links links = links_default(), read = {0};

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/links", folder);
	snprintf(pipe, sizeof pipe, "%s/pipe", folder);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	/* A file that cannot be made is an error where it was asked for. */
	snprintf(nowhere, sizeof nowhere, "%s/none/links", folder);
	assert_int_equal(links_check(path), TUTTI_OK);
	assert_int_not_equal(access(path, F_OK), 0); /* it was not made */
	assert_int_equal(links_check(nowhere), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), nowhere));
	assert_non_null(strstr(last_error(), "No such file"));
	assert_int_equal(links_check("/proc/tutti_links"),
			 TUTTI_ERR_SYSTEM); /* root may do everything */
	assert_int_equal(links_check(pipe), TUTTI_ERR_INVALID);
	assert_int_equal(links_check(folder), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "it is no file"));
	assert_false(links_read(&read, path, "here"));
	assert_false(links_read(&read, pipe, "here"));
	links_append(&links, pipe, "here"); /* nobody reads it */
	assert_false(links_read(&read, folder, "here"));
	links_append(&links, path, "here");
	assert_int_equal(links_check(path), TUTTI_OK);
	assert_false(links_read(&read, path, "her"));
	assert_true(links_read(&read, path, "here"));
	assert_true(memcmp(&links.gamma, &read.gamma, sizeof read.gamma) == 0);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs("here 0 0 0 0 0 0 0 1\nhere 1 1\nhere -1 1 1 1 1 1 1 1\nhere nan 1 1 1 1 1 1 1\nhere "
	      "1 1 1 1 1 1 1\n",
	      file);
	fclose(file);
	assert_false(links_read(&read, path, "here"));
	/* A file without any sound line may belong to another program. */
	assert_int_equal(links_check(path), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "none of its lines"));
	links_append(&links, path, "there"); /* a torn line or two do no harm */
	assert_int_equal(links_check(path), TUTTI_OK);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(links_check(path), TUTTI_OK);
	unlink(path);
	unlink(pipe);
	rmdir(folder);
}

static void test_forced(void **state)
{
	struct select s = {.size = 5};
	assert_int_equal(select_parse(&s, "all_reduce:4-8=ring,all_reduce=window"), TUTTI_OK);
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 2, TUTTI_F32, TUTTI_SUM), "ring");
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 3, TUTTI_F32, TUTTI_SUM), "none");
	assert_non_null(strstr(last_error(), "forces window"));
	assert_string_equal(chosen(s, COLL_ALL_REDUCE, 1, TUTTI_I32, TUTTI_AVG), "none");
	assert_int_equal(select_parse(&s, "all_reduce=rong"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_redice=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:8-4=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:20000000000G-=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:99999999999999999999-=ring"),
			 TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:-=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:4x=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:=ring"), TUTTI_ERR_INVALID);
	assert_int_equal(select_parse(&s, "all_reduce:8=ring"), TUTTI_OK); /* one size */
	assert_int_equal(s.rule[0].first, 8);
	assert_int_equal(s.rule[0].last, 8);
	assert_int_equal(select_parse(&s, "all_reduce:-1K=ring"), TUTTI_OK);
	assert_int_equal(s.rule[0].first, 0);
	assert_int_equal(s.rule[0].last, 1024);
	assert_int_equal(select_parse(&s, "all_reduce:2M-=ring"), TUTTI_OK);
	assert_int_equal(s.rule[0].first, 2 << 20);
	assert_true(s.rule[0].last == SIZE_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_ranks),      cmocka_unit_test(test_one_association),
		cmocka_unit_test(test_links_decide),    cmocka_unit_test(test_links_file),
		cmocka_unit_test(test_forced),          cmocka_unit_test(test_shared_cores),
		cmocka_unit_test(test_means),           cmocka_unit_test(test_one_way),
		cmocka_unit_test(test_few_ranks),       cmocka_unit_test(test_long_on_shared_cores),
		cmocka_unit_test(test_one_way_is_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
