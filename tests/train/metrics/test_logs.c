/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: log files that readers cannot read, that a restart damages, and a full disk on
 * rank 0 while other ranks wait. */
#include "tests/train/ranks.h"

#include <glob.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit.h"

enum { NOBODY = 65534, TEXT_BYTES = 65536, PATH_BYTES = 256 };

/* What a job of some ranks logs, and where. */
struct job {
	char dir[PATH_BYTES / 2];
	unsigned formats;
	int interval;
	int first_step, steps;
	int twice; /* starts a second time in the same directory */
};

static void make_dir(struct job *job)
{
	snprintf(job->dir, sizeof job->dir, "/tmp/tutti_logs_XXXXXX");
	assert_non_null(mkdtemp(job->dir));
}

static void remove_dir(const struct job *job)
{
	char command[PATH_BYTES];

	snprintf(command, sizeof command, "rm -rf %s", job->dir);
	assert_int_equal(system(command), 0);
}

static const char *path_in(const struct job *job, const char *name, char *path)
{
	snprintf(path, PATH_BYTES, "%s/%s", job->dir, name);
	return path;
}

/* Reads the file to text, with a zero at its end. Returns its bytes. */
static size_t read_file(const struct job *job, const char *name, char *text)
{
	char path[PATH_BYTES];
	FILE *file = fopen(path_in(job, name, path), "rb");

	assert_non_null(file);
	size_t bytes = fread(text, 1, TEXT_BYTES - 1, file);
	text[bytes] = '\0';
	fclose(file);
	return bytes;
}

static void append_file(const struct job *job, const char *name, const char *text)
{
	char path[PATH_BYTES];
	FILE *file = fopen(path_in(job, name, path), "ab");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* What the Python reader finds in the directory. */
static void read_back(const struct job *job, char *text)
{
	const char *source = getenv("SOURCE_DIR");
	char command[3 * PATH_BYTES];

	snprintf(command, sizeof command, "python3 '%s/tests/train/metrics/read_logs.py' '%s'",
		 source ? source : ".", job->dir);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	text[fread(text, 1, TEXT_BYTES - 1, pipe)] = '\0';
	assert_int_equal(pclose(pipe), 0);
}

static int count_of(const char *text, const char *part)
{
	int count = 0;

	while ((text = strstr(text, part))) {
		count++;
		text += strlen(part);
	}
	return count;
}

/* The worst names for each format, and a plain one. */
static const char *const names[] = {"loss",       "a,b",         "say \"hi\"",
				    "two\nlines", " x\\y\t\x01", "\xc3\xa9t\xc3\xa9/m/s"};
enum { NAMES = sizeof names / sizeof *names };

static tutti_metric_kind kind_of(int m)
{
	return m == 2 || m == 4 ? TUTTI_METRIC_MIN : TUTTI_METRIC_MAX;
}

/* The same at every number of ranks; at steps 1, 5, 9 ... one value is odd. */
static void add_step(tutti_metrics *metrics, int step, int rank, int size)
{
	const double odd[NAMES] = {NAN, INFINITY, -INFINITY, 1e300, -0.1, 0};
	int is_odd = step % 4 == 1;

	for (int i = rank; i < 8; i += size)
		for (int m = 0; m < NAMES - is_odd;
		     m++) { /* odd steps have no value of the last metric */
			double value = is_odd && i == 3 ? odd[m] : step + i / 8.0;
			CHECK(tutti_metrics_add(metrics, m, value, 1) == TUTTI_OK);
		}
}

static void log_steps(tutti_comm *comm, void *arg)
{
	const struct job *job = arg;
	const tutti_metrics_config config = {
		.dir = job->dir, .formats = job->formats, .interval = job->interval};

	for (int start = 0; start <= job->twice; start++) {
		tutti_metrics *metrics = NULL;
		CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
		for (int m = 0; m < NAMES; m++)
			CHECK(tutti_metrics_declare(metrics, names[m], kind_of(m)) == m);
		for (int s = 0; s < job->steps; s++) {
			add_step(metrics, job->first_step + s, tutti_rank(comm), tutti_size(comm));
			CHECK(tutti_metrics_step(metrics, job->first_step + s) == TUTTI_OK);
		}
		CHECK(tutti_metrics_flush(metrics) == TUTTI_OK);
		tutti_metrics_destroy(metrics);
	}
}

static void put_bits(char **next, const char *format, int step, const char *name, double value)
{
	float narrow = (float)value;
	uint64_t bits;
	uint32_t narrow_bits;

	memcpy(&bits, &value, sizeof bits);
	memcpy(&narrow_bits, &narrow, sizeof narrow_bits);
	*next += sprintf(*next, "%s %d %s ", format, step, name);
	*next += strcmp(format, "tensorboard") == 0
			 ? sprintf(*next, "%08x\n", narrow_bits)
			 : sprintf(*next, "%016llx\n", (unsigned long long)bits);
}

/* The expected output of read_logs.py for one format, of steps with one row each. */
static void put_expected(char **next, const char *format, int first, int steps)
{
	/* The names as Python's JSON has them. */
	static const char *const shown[NAMES] = {"\"loss\"",
						 "\"a,b\"",
						 "\"say \\\"hi\\\"\"",
						 "\"two\\nlines\"",
						 "\" x\\\\y\\t\\u0001\"",
						 "\"\\u00e9t\\u00e9/m/s\""};

	for (int step = first; step < first + steps; step++)
		for (int m = 0; m < NAMES; m++) {
			/* Of step, step + 1/8 ... step + 7/8, and at some steps an odd value among
			 * them. */
			const double odd[NAMES] = {NAN, INFINITY, -INFINITY, 1e300, -0.1, 0};
			double plain = kind_of(m) == TUTTI_METRIC_MIN ? step : step + 7 / 8.0;
			if (step % 4 != 1)
				put_bits(next, format, step, shown[m], plain);
			else if (m != 5)
				put_bits(next, format, step, shown[m], odd[m]);
		}
}

static void test_read_back(void **state)
{
	static char got[TEXT_BYTES], expected[TEXT_BYTES];

	if (system("command -v python3 >/dev/null") != 0) {
		skip_because("Python 3 is not installed");
	}
	for (int n = 1; n <= 4; n += 3) {
		struct job job = {.interval = 1, .first_step = -1, .steps = 4, .twice = 1};
		make_dir(&job);
		assert_int_equal(ranks_as_threads(n, log_steps, &job), 0);
		/* A restart that goes back: the same steps again, in files with one head, and in a
		 * second event file that sorts behind the first. */
		char *next = expected;
		const char *const formats[] = {"tensorboard", "csv", "json"};
		for (int f = 0; f < 3; f++)
			for (int start = 0; start <= 1; start++)
				put_expected(&next, formats[f], -1, 4);
		read_back(&job, got);
		assert_string_equal(got, expected);
		remove_dir(&job);
	}
}

/* The exact text, for machines without Python. */
static void test_text(void **state)
{
	static char text[TEXT_BYTES];
	struct job job = {.formats = TUTTI_LOG_CSV | TUTTI_LOG_JSON,
			  .interval = 1,
			  .first_step = 1,
			  .steps = 1};

	make_dir(&job);
	assert_int_equal(ranks_as_threads(2, log_steps, &job), 0);
	read_file(&job, "metrics.csv", text);
	assert_ptr_equal(
		strstr(text,
		       "step,time,loss,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\" x\\y\t\x01\","
		       "\xc3\xa9t\xc3\xa9/m/s\n1,"),
		text);
	assert_string_equal(strchr(strstr(text, "\n1,") + 3, ','), ",nan,inf,-inf,1e+300,-0.1,\n");
	read_file(&job, "metrics.jsonl", text);
	assert_ptr_equal(strstr(text, "{\"step\":1,\"time\":"), text);
	assert_string_equal(
		strstr(text, ",\"loss\""),
		",\"loss\":\"NaN\",\"a,b\":\"Infinity\",\"say \\\"hi\\\"\":\"-Infinity\","
		"\"two\\u000alines\":1e+300,\" x\\\\y\\u0009\\u0001\":-0.1}\n");
	/* No other files than those that were asked for. */
	char command[2 * PATH_BYTES];
	snprintf(command, sizeof command, "test \"$(ls -A %s | wc -l)\" = 2", job.dir);
	assert_int_equal(system(command), 0);
	remove_dir(&job);
}

/* Rank 0 died in the middle of a row, or of the head. */
static void test_half_rows(void **state)
{
	static char text[TEXT_BYTES], big[3 * 4096];
	struct job job = {.formats = TUTTI_LOG_CSV | TUTTI_LOG_JSON, .interval = 1, .steps = 1};

	make_dir(&job);
	append_file(&job, "metrics.csv", "step,time,lo");
	append_file(&job, "metrics.jsonl", "{\"st");
	assert_int_equal(ranks_as_threads(1, log_steps, &job), 0);
	memset(big, '7', sizeof big - 1); /* longer than what is read at once */
	append_file(&job, "metrics.csv", big);
	append_file(&job, "metrics.jsonl", "{\"step\":7,\"ti");
	assert_int_equal(ranks_as_threads(1, log_steps, &job), 0);
	read_file(&job, "metrics.csv", text);
	assert_int_equal(count_of(text, "step,time"), 1);
	assert_int_equal(count_of(text, "\n"), 4); /* two of the head, two rows */
	assert_int_equal(count_of(text, "\n0,"), 2);
	assert_null(strstr(text, "7777777777")); /* some 7s may be in a time */
	read_file(&job, "metrics.jsonl", text);
	assert_int_equal(count_of(text, "{\"step\":0,"), 2);
	assert_int_equal(count_of(text, "\n"), 2);
	assert_null(strstr(text, "\"ti{"));
	remove_dir(&job);
}

/* A directory, and the failure of the first step in it. */
struct refusal {
	struct job job;
	tutti_status status;
	const char *message;
	int uid; /* rank 0 opens files as this user; 0: unchanged */
};

static void first_step_fails(tutti_comm *comm, void *arg)
{
	const struct refusal *refusal = arg;
	const tutti_metrics_config config = {.dir = refusal->job.dir,
					     .formats = refusal->job.formats};
	tutti_metrics *metrics = NULL;

	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "loss", TUTTI_METRIC_MEAN) == 0);
	for (int i = 0; i < 2; i++)
		CHECK_ERROR(tutti_metrics_step(metrics, i), refusal->status, refusal->message);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	tutti_metrics_destroy(metrics);
}

static void test_other_files(void **state)
{
	static char text[TEXT_BYTES];
	struct refusal csv = {.job = {.formats = TUTTI_LOG_CSV},
			      .status = TUTTI_ERR_INVALID,
			      .message = "metrics.csv does not begin with step,time,loss\n"};
	struct refusal json = {.job = {.formats = TUTTI_LOG_JSON},
			       .status = TUTTI_ERR_INVALID,
			       .message = "metrics.jsonl does not begin with"};

	make_dir(&csv.job);
	append_file(&csv.job, "metrics.csv", "step,time,accuracy\n1,1,1\n1,");
	snprintf(json.job.dir, sizeof json.job.dir, "%s", csv.job.dir);
	append_file(&json.job, "metrics.jsonl", "my notes");
	for (int n = 1; n <= 3; n++) {
		assert_int_equal(ranks_as_threads(n, first_step_fails, &csv), 0);
		assert_int_equal(ranks_as_threads(n, first_step_fails, &json), 0);
	}
	/* They are as they were. */
	read_file(&csv.job, "metrics.csv", text);
	assert_string_equal(text, "step,time,accuracy\n1,1,1\n1,");
	read_file(&csv.job, "metrics.jsonl", text);
	assert_string_equal(text, "my notes");
	remove_dir(&csv.job);
}

/* A file with more columns than were declared: the first step fails. After the other metrics are
 * declared the row has all of them. */
enum { MORE = 40 };

static void declares_the_rest(tutti_comm *comm, void *arg)
{
	const struct job *job = arg;
	const tutti_metrics_config config = {.dir = job->dir, .formats = TUTTI_LOG_CSV};
	tutti_metrics *metrics = NULL;
	double value = 0;
	char name[16];

	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "loss", TUTTI_METRIC_SUM) == 0);
	CHECK_ERROR(tutti_metrics_step(metrics, 0), TUTTI_ERR_INVALID, "does not begin with");
	for (int m = 1; m <= MORE; m++) {
		snprintf(name, sizeof name, "x%d", m);
		CHECK(tutti_metrics_declare(metrics, name, TUTTI_METRIC_SUM) == m);
	}
	for (int m = 0; m <= MORE; m++)
		CHECK(tutti_metrics_add(metrics, m, m, 1) == TUTTI_OK);
	CHECK(tutti_metrics_step(metrics, 0) == TUTTI_OK);
	for (int m = 0; m <= MORE; m++)
		CHECK(tutti_metrics_value(metrics, m, &value) == TUTTI_OK &&
		      value == m * tutti_size(comm));
	CHECK(tutti_metrics_flush(metrics) == TUTTI_OK);
	tutti_metrics_destroy(metrics);
}

static void test_declared_after_refusal(void **state)
{
	static char text[TEXT_BYTES], head[MORE * 16];
	struct job job = {0};
	char *next = head + sprintf(head, "step,time,loss");

	make_dir(&job);
	for (int m = 1; m <= MORE; m++)
		next += sprintf(next, ",x%d", m);
	sprintf(next, "\n");
	append_file(&job, "metrics.csv", head);
	for (int n = 1; n <= 3; n++)
		assert_int_equal(ranks_as_threads(n, declares_the_rest, &job), 0);
	read_file(&job, "metrics.csv", text);
	assert_int_equal(count_of(text, head), 1);
	assert_int_equal(count_of(text, ",120\n"), 1); /* MORE on each of 3 ranks */
	remove_dir(&job);
}

/* Rows into a full device: the row's call is OK on all ranks, and the next call fails on all. */
static void full_device(tutti_comm *comm, void *arg)
{
	const struct job *job = arg;
	const tutti_metrics_config config = {.dir = job->dir,
					     .formats = TUTTI_LOG_JSON | TUTTI_LOG_TENSORBOARD};
	const char *message = "Writing '";
	tutti_metrics *metrics = NULL;
	double value = 0;

	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "n", TUTTI_METRIC_SUM) == 0);
	CHECK(tutti_metrics_step(metrics, 0) == TUTTI_OK);
	for (int step = 1; step <= 2; step++) {
		CHECK(tutti_metrics_add(metrics, 0, 1, 1) == TUTTI_OK);
		CHECK_ERROR(tutti_metrics_step(metrics, step), TUTTI_ERR_SYSTEM, message);
		CHECK_MESSAGE("metrics.jsonl' failed: No space left on device (errno 28)");
		CHECK(tutti_metrics_value(metrics, 0, &value) == TUTTI_OK &&
		      value == tutti_size(comm));
	}
	CHECK_ERROR(tutti_metrics_flush(metrics), TUTTI_ERR_SYSTEM, message);
	CHECK(tutti_metrics_flush(metrics) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	tutti_metrics_destroy(metrics);
}

static long long events_bytes(const struct job *job)
{
	char path[PATH_BYTES];
	struct stat stat;
	glob_t files;
	long long bytes = 0;

	assert_int_equal(glob(path_in(job, "events.out.tfevents.*", path), 0, NULL, &files), 0);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		assert_int_equal(lstat(files.gl_pathv[i], &stat), 0);
		bytes += stat.st_size;
	}
	globfree(&files);
	return bytes;
}

static void test_full_device(void **state)
{
	char path[PATH_BYTES];
	struct refusal csv = {.job = {.formats = TUTTI_LOG_CSV},
			      .status = TUTTI_ERR_SYSTEM,
			      .message = "metrics.csv' failed: No space left on device"};
	struct job job = {0};

	make_dir(&csv.job);
	make_dir(&job);
	assert_int_equal(symlink("/dev/full", path_in(&csv.job, "metrics.csv", path)), 0);
	assert_int_equal(symlink("/dev/full", path_in(&job, "metrics.jsonl", path)), 0);
	for (int n = 1; n <= 3; n++) {
		assert_int_equal(ranks_as_threads(n, first_step_fails, &csv), 0);
		assert_int_equal(ranks_as_threads(n, full_device, &job), 0);
	}
	assert_int_equal(ranks_as_processes(2, full_device, &job), 0);
	/* The next file has every row, of four starts: 40 bytes each, an empty row in 29, two
	 * in 39. */
	assert_int_equal(events_bytes(&job), 4 * (40 + 29 + 2 * 39));
	remove_dir(&csv.job);
	remove_dir(&job);
}

static void create_fails(tutti_comm *comm, void *arg)
{
	const struct refusal *refusal = arg;
	/* Only rank 0's directory counts. */
	const tutti_metrics_config config = {.dir = tutti_rank(comm) == 0 ? refusal->job.dir
									  : "/nowhere/at/all"};
	tutti_metrics *metrics = NULL;

	if (refusal->uid && tutti_rank(comm) == 0)
		setfsuid((uid_t)refusal->uid);
	CHECK_ERROR(tutti_metrics_create(&metrics, comm, &config), refusal->status,
		    refusal->message);
	if (refusal->uid && tutti_rank(comm) == 0)
		setfsuid(getuid());
	CHECK(metrics == NULL);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

static void test_no_directory(void **state)
{
	char path[PATH_BYTES];
	struct refusal cases[] = {
		{.job = {.dir = "/nowhere/logs"},
		 .message = "Making the folder '/nowhere/logs' failed: No such file"},
		{.job = {.dir = "/dev/null"},
		 .message = "/dev/null/metrics.csv' failed: Not a directory (errno 20)"},
		{.message = "metrics.csv' failed: Permission denied (errno 13)",
		 .uid = getuid() == 0 ? NOBODY : 0},
		{.message = "metrics.csv' failed: Is a directory (errno 21)"},
	};
	enum { CASES = sizeof cases / sizeof *cases, FORBIDDEN = 2, OCCUPIED = 3 };

	make_dir(&cases[FORBIDDEN].job);
	assert_int_equal(chmod(cases[FORBIDDEN].job.dir, 0555), 0);
	make_dir(&cases[OCCUPIED].job);
	assert_int_equal(mkdir(path_in(&cases[OCCUPIED].job, "metrics.csv", path), 0777), 0);
	for (int n = 1; n <= 3; n++)
		for (int i = 0; i < CASES; i++) {
			cases[i].status = TUTTI_ERR_SYSTEM;
			assert_int_equal(ranks_as_threads(n, create_fails, &cases[i]), 0);
		}
	/* After setfsuid no other process may inspect this one, which sanitizers do at the end. */
	prctl(PR_SET_DUMPABLE, 1);
	remove_dir(&cases[FORBIDDEN].job);
	remove_dir(&cases[OCCUPIED].job);
}

/* The disk gets full in the middle of a row: the part is removed, earlier rows stay, and no signal
 * ends the process. */
static void half_a_write(tutti_comm *comm, void *arg)
{
	const struct job *job = arg;
	const tutti_metrics_config config = {.dir = job->dir, .formats = TUTTI_LOG_CSV};
	const struct rlimit limit = {.rlim_cur = 70, .rlim_max = RLIM_INFINITY};
	const struct rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	tutti_metrics *metrics = NULL;

	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "loss", TUTTI_METRIC_LAST) == 0);
	/* 15 bytes of head and 23 for each row: 61 of two. */
	for (int step = 0; step < 4; step++) {
		CHECK(tutti_metrics_add(metrics, 0, 0.125, 1) == TUTTI_OK);
		tutti_status status = tutti_metrics_step(metrics, step);
		CHECK(status == (step < 3 ? TUTTI_OK : TUTTI_ERR_SYSTEM));
	}
	CHECK_MESSAGE("metrics.csv' failed: File too large (errno 27)");
	CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
	CHECK(tutti_metrics_step(metrics, 4) == TUTTI_ERR_SYSTEM); /* of the row before */
	CHECK(tutti_metrics_flush(metrics) == TUTTI_OK);
	tutti_metrics_destroy(metrics);
}

static void test_half_a_write(void **state)
{
	static char text[TEXT_BYTES];
	struct job job = {0};

	make_dir(&job);
	/* A process of its own, because the limit is for the whole process. */
	assert_int_equal(ranks_as_processes(1, half_a_write, &job), 0);
	read_file(&job, "metrics.csv", text);
	assert_int_equal(count_of(text, "\n"), 4);
	assert_true(strstr(text, "\n0,") < strstr(text, "\n1,") &&
		    strstr(text, "\n1,") < strstr(text, "\n4,"));
	assert_null(strstr(text, "\n2,"));
	remove_dir(&job);
}

/* A program with a locale of decimal commas. */
static void test_comma(void **state)
{
	static char text[TEXT_BYTES];
	struct job job = {.formats = TUTTI_LOG_CSV | TUTTI_LOG_JSON,
			  .interval = 1,
			  .first_step = 2,
			  .steps = 1};
	char path[PATH_BYTES], command[4 * PATH_BYTES];

	make_dir(&job);
	snprintf(command, sizeof command,
		 "cd %s && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep "
		 "\"\"\\ngrouping -1\\nEND "
		 "LC_NUMERIC\\n' >comma && localedef -c -i comma ./xx_XX >localedef.txt 2>&1",
		 job.dir);
	int has_locale = system(command) >= 0 && access(path_in(&job, "xx_XX", path), F_OK) == 0;
	setenv("LOCPATH", job.dir, 1);
	has_locale = has_locale && setlocale(LC_NUMERIC, "xx_XX") &&
		     localeconv()->decimal_point[0] == ',';
	if (!has_locale) {
		remove_dir(&job);
		skip_because("localedef made no language with decimal commas");
	}
	assert_int_equal(ranks_as_threads(1, log_steps, &job), 0);
	assert_int_equal(localeconv()->decimal_point[0], ',');
	setlocale(LC_NUMERIC, "C");
	read_file(&job, "metrics.csv", text);
	assert_non_null(strstr(text, ",2.875,2.875,2,"));
	read_file(&job, "metrics.jsonl", text);
	assert_non_null(strstr(text, "\"loss\":2.875,"));
	remove_dir(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_back),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_half_rows),
		cmocka_unit_test(test_other_files),
		cmocka_unit_test(test_full_device),
		cmocka_unit_test(test_no_directory),
		cmocka_unit_test(test_half_a_write),
		cmocka_unit_test(test_comma),
		cmocka_unit_test(test_declared_after_refusal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
