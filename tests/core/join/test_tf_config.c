/* Breaks when TF_CONFIG is misread, or when a text that is not JSON, or not what it should say, is
 * taken for one, or harms the reader. */
#include "core/status.h"
#include "core/join/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define WORKERS "\"worker\": [\"a:1\", \"b:2\", \"[::1]:3\"]"

static void expect(const char *text, int rank, int size, const char *host, int port)
{
	struct job job = {0};

	if (tf_config_read(&job, text) != TUTTI_OK)
		fail_msg("%s: %s", text, last_error());
	assert_int_equal(job.rank, rank);
	assert_int_equal(job.size, size);
	assert_string_equal(job.host, host);
	assert_int_equal(job.port, port);
}

static void refused(const char *text, const char *says)
{
	struct job job = {.rank = -7};

	if (tf_config_read(&job, text) != TUTTI_ERR_INVALID)
		fail_msg("%s was taken", text);
	if (!strstr(last_error(), says))
		fail_msg("%s: \"%s\" does not say \"%s\"", text, last_error(), says);
	assert_int_equal(job.rank, -7);
}

static void workers_and_chiefs(void **state)
{
	expect("{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"worker\", \"index\": 2}}", 2, 3,
	       "a", 1);
	expect("{\"task\":{\"index\":0,\"type\":\"worker\"},\"cluster\":{" WORKERS "}}", 0, 3, "a",
	       1);
	expect("{\"cluster\": {" WORKERS ", \"chief\": [\"c:9\"]}, "
	       "\"task\": {\"type\": \"worker\", \"index\": 0}}",
	       1, 4, "c", 9);
	expect("{\"cluster\": {\"chief\": [\"c:9\"], " WORKERS "}, "
	       "\"task\": {\"type\": \"chief\", \"index\": 0}}",
	       0, 4, "c", 9);
	expect(" {\t\"cluster\" :\n{ \"ps\": [\"x:1\"], \"worker\" : [ \"[fe80::1%lo]:1\" ] } , "
	       "\"rpc_layer\": \"grpc\", \"more\": [1, -2.5e+3, true, null, {\"x\": []}], "
	       "\"task\": {\"type\": \"worker\", \"index\": 0, \"trial\": \"1\"} }\n",
	       0, 1, "fe80::1%lo", 1);
	expect("{\"cluster\": {\"worker\": [\"\\u0061:1\"]}, "
	       "\"task\": {\"type\": \"worker\", \"index\": 0}}",
	       0, 1, "a", 1);
}

static uint32_t hosts_of(const char *cluster)
{
	struct job job = {0};
	char text[200];

	snprintf(text, sizeof text,
		 "{\"cluster\": {%s}, \"task\": {\"type\": \"worker\", \"index\": 0}}", cluster);
	assert_int_equal(tf_config_read(&job, text), TUTTI_OK);
	return job.hosts;
}

static void lists_of_hosts_are_told_apart(void **state)
{
	uint32_t hosts = hosts_of("\"worker\": [\"a:1\", \"b:2\"], \"chief\": [\"c:3\"]");

	assert_int_not_equal(hosts, 0);
	assert_int_equal(
		hosts,
		hosts_of("\"chief\":[\"c:3\"], \"ps\":[\"d:1\"],\"worker\":[\"a:1\",\"b:2\"]"));
	assert_int_not_equal(hosts,
			     hosts_of("\"worker\": [\"b:2\", \"a:1\"], \"chief\": [\"c:3\"]"));
	assert_int_not_equal(hosts,
			     hosts_of("\"worker\": [\"a:1\", \"b:3\"], \"chief\": [\"c:3\"]"));
	assert_int_not_equal(hosts, hosts_of("\"worker\": [\"c:3\", \"a:1\", \"b:2\"]"));
}

static void the_environment_is_read(void **state)
{
	struct env env = {.timeout_ms = 1000};
	struct job job;

	unsetenv("RANK");
	unsetenv("WORLD_SIZE");
	setenv("TF_CONFIG",
	       "{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"worker\", \"index\": 1}}", 1);
	assert_int_equal(job_find(&job, NULL, &env), TUTTI_OK);
	assert_string_equal(job.launcher, "tf_config");
	assert_int_equal(job.rank, 1);
	assert_int_equal(job.size, 3);
	assert_int_equal(job.local_rank, -1);
	assert_int_equal(job.meeting, JOB_TCP);
	assert_string_equal(job.host, "a");
	assert_int_equal(job.port, 1);
	setenv("TF_CONFIG", "{}", 1);
	assert_int_equal(job_find(&job, NULL, &env), TUTTI_ERR_INVALID);
	unsetenv("TF_CONFIG");
}

static void what_is_missing_is_named(void **state)
{
	refused("{}", "cluster.worker");
	refused("{\"cluster\": {" WORKERS "}}", "task.type");
	refused("{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"worker\"}}", "task.index");
	refused("{\"cluster\": {" WORKERS "}, \"task\": {\"index\": 1}}", "task.type");
	refused("{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"ps\", \"index\": 0}}",
		"task.type is \"ps\"");
	refused("{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"worker\", \"index\": 3}}",
		"task.index is 3, but cluster.worker has 3 entries");
	refused("{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"chief\", \"index\": 0}}",
		"cluster.chief has 0 entries");
	refused("{\"cluster\": {\"chief\": [\"a:1\", \"b:1\"]}, "
		"\"task\": {\"type\": \"chief\", \"index\": 0}}",
		"2 chiefs");
	refused("{\"cluster\": {\"worker\": [\"a\"]}, \"task\": {\"type\": \"worker\", \"index\": "
		"0}}",
		"names \"a\" where host:port");
	refused("{\"cluster\": {\"worker\": [\"\"]}, \"task\": {\"type\": \"worker\", \"index\": "
		"0}}",
		"names \"\" where host:port");
	refused("{\"cluster\": {\"worker\": [\"a:1\", \"\"]}, "
		"\"task\": {\"type\": \"worker\", \"index\": 0}}",
		"names \"\" where host:port");
	refused("{\"cluster\": {\"worker\": [\":1\"]}, "
		"\"task\": {\"type\": \"worker\", \"index\": 0}}",
		"names \":1\" where host:port");
}

static void what_is_not_json_is_refused(void **state)
{
	static const char *const wrong[] = {"",
					    "x",
					    "{",
					    "}",
					    "[]",
					    "{]",
					    "{,}",
					    "{\"a\"}",
					    "{\"a\":}",
					    "{\"a\":1,}",
					    "{\"a\":1 \"b\":2}",
					    "{\"a\":1}}",
					    "{\"a\":1} x",
					    "{\"a\":01}",
					    "{\"a\":1.}",
					    "{\"a\":1e}",
					    "{\"a\":-}",
					    "{\"a\":+1}",
					    "{\"a\":tru}",
					    "{\"a\":\"\\x\"}",
					    "{\"a\":\"\\u00\"}",
					    "{\"a\":\"\\ud800\"}",
					    "{\"a\":\"\n\"}",
					    "{\"a\":\"",
					    "{\"a\":[1,]}",
					    "{\"a\":[1 2]}",
					    "{\"a\":[,1]}",
					    "{'a':1}",
					    "{\"a\":nullx}"};

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refused(wrong[i], "TF_CONFIG is no JSON object: ");
	refused("{\"a\":1 \"b\":2}", "'}' expected near '\"b\"', at byte 10");
}

static void wrong_types_are_named(void **state)
{
	static const char *const tasks[] = {"-1", "1.0", "\"1\"", "null", "[]"};
	char text[300];

	for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
		snprintf(text, sizeof text,
			 "{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"worker\", "
			 "\"index\": %s}}",
			 tasks[i]);
		refused(text, "no task.index, a number from 0");
	}
	refused("{\"cluster\": {" WORKERS "}, \"task\": {\"type\": \"worker\", \"index\": "
		"99999999999}}",
		"task.index is 99999999999, but");
	refused("{\"cluster\": []}", "cluster is not an object");
	refused("{\"cluster\": {\"worker\": \"a:1\"}}", "cluster.worker is not a list");
	refused("{\"cluster\": {\"worker\": [1]}}", "cluster.worker names \"?\"");
	refused("{\"cluster\": {\"chief\": [\"a\\n:1\"]}}", "cluster.chief names");
	refused("{\"cluster\": {" WORKERS "}, \"task\": []}", "task.type");
}

/* Every cut and many damaged texts: no crash, no read past the end (the sanitizers look on). */
static void damage_does_no_harm(void **state)
{
	static const char text[] =
		"{\"cluster\": {\"chief\": [\"c:9\"], " WORKERS "}, \"x\": [1, {\"y\": -2.5e3}], "
		"\"task\": {\"type\": \"worker\", \"index\": 0}}";
	static const char bytes[] = "{}[]\",:\\ux019-.eE \tatf\n\x80";
	unsigned seed = 20261120;

	print_message("seed %u\n", seed);
	for (size_t n = 0; n < sizeof text; n++) {
		char *cut = strndup(text, n);
		struct job job;
		assert_int_equal(tf_config_read(&job, cut) == TUTTI_OK, n == sizeof text - 1);
		free(cut);
	}
	for (int i = 0; i < 50000; i++) {
		char *damaged = strdup(text);
		struct job job = {0};
		for (int k = 0; k < 1 + i % 3; k++) {
			seed = seed * 1664525u + 1013904223u;
			damaged[(seed >> 16) % (sizeof text - 1)] =
				bytes[(seed >> 8) % (sizeof bytes - 1)];
		}
		if (tf_config_read(&job, damaged) == TUTTI_OK)
			assert_in_range(job.rank, 0, job.size - 1);
		free(damaged);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_and_chiefs),
		cmocka_unit_test(lists_of_hosts_are_told_apart),
		cmocka_unit_test(the_environment_is_read),
		cmocka_unit_test(what_is_missing_is_named),
		cmocka_unit_test(what_is_not_json_is_refused),
		cmocka_unit_test(wrong_types_are_named),
		cmocka_unit_test(damage_does_no_harm),
	};
	struct job job;

	if (tf_config_read(&job, "{}") == TUTTI_ERR_UNSUPPORTED) {
		puts("jansson is not installed");
		return strstr(last_error(), "(Debian: libjansson-dev)") ? 77 : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
