/* slow: 3 s */
/* What would break: tutti-trace and tutti-top themselves, by what they read. Pages and files of
 * random bytes, right ones with some bytes changed, cut off anywhere: they are refused or read,
 * without a crash. */
#include "tests/whole.h"
#include "tools/tutti-trace/merge.h"

#include "collectives/select/select.h"

#include "core/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define PAGE_BYTES (sizeof(struct trace_page) + TRACE_SLOTS * sizeof(struct trace))
#define PAGES      300
#define FILES      3000

static uint64_t state_of_random;

static uint64_t next(void)
{
	uint64_t *x = &state_of_random;
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static uint8_t *right_page;

static void copy_page(void *arg, const struct trace_page *page)
{
	(void)arg;
	memcpy(right_page, page, PAGE_BYTES);
}

/* A page with something on it. */
static void make_page(void)
{
	struct trace_about about = {.name = 5, .rank = 1, .size = 2, .num_nodes = 1, .way = "tcp"};
	struct trace *t;
	assert_int_equal(trace_open(&t, &about, algorithm_name), TUTTI_OK);
	for (uint64_t i = 0; i < 1500; i++) {
		unsigned n = (unsigned)i;
		trace_label(t, i % 3 ? NULL : "unit h.3");
		struct trace_mark mark =
			trace_note(t, trace_what(i, n % COLL_COUNT, 0, n % 9, 0), trace_size(i, 0));
		trace_began(&mark);
		trace_ended(&mark, false);
	}
	trace_each_page(copy_page, NULL);
	trace_close(t);
}

/* Reads it as it is, and writes what it says, which is read again. */
static void use_page(const uint8_t *bytes, size_t length)
{
	struct trace_process p = {0};
	struct log log = {0};
	char *text = NULL, why[200];
	size_t text_bytes;

	tutti_status status =
		trace_read(&p, (const struct trace_page *)(const void *)bytes, length, "A page");
	assert_true(status == TUTTI_OK || strlen(last_error()) > 0);
	FILE *file = open_memstream(&text, &text_bytes);
	trace_write(file, &p, 1);
	fclose(file);
	load_text(&log, text, why, sizeof why);
	log_free(&log);
	free(text);
	trace_process_free(&p);
}

static void test_pages(void **state)
{
	uint8_t *page = aligned_alloc(4096, PAGE_BYTES);
	(void)state;
	for (int i = 0; i < whole_or(PAGES, PAGES / 3, PAGES); i++) {
		size_t damages = next() % 200, from = i % 3 ? sizeof(struct trace_page) : 0;
		memcpy(page, right_page, PAGE_BYTES);
		for (size_t d = 0; d < damages; d++) {
			uint64_t word = next() >> next() % 64;
			memcpy(page + from + next() % (PAGE_BYTES - from - 8), &word, 8);
		}
		use_page(page, PAGE_BYTES);
	}
	free(page);
}

/* Everything behind the words that say what it is. */
static void test_random_slots(void **state)
{
	uint8_t *page = aligned_alloc(4096, PAGE_BYTES);
	(void)state;
	for (int i = 0; i < 20; i++) {
		memcpy(page, right_page, PAGE_BYTES);
		for (size_t at = sizeof(struct trace_page); at < PAGE_BYTES; at += 8) {
			uint64_t word = next() >> next() % 64;
			memcpy(page + at, &word, 8);
		}
		use_page(page, PAGE_BYTES);
	}
	free(page);
}

static void test_cut_pages(void **state)
{
	(void)state;
	for (size_t length = 0; length < PAGE_BYTES; length += 1 + next() % 15000) {
		uint8_t *page = aligned_alloc(4096, (length + 4095) / 4096 * 4096 + 4096);
		memcpy(page, right_page, length);
		use_page(page, length);
		free(page);
	}
}

static void test_other_version(void **state)
{
	struct trace_process p = {0};
	struct trace_page *page = aligned_alloc(4096, PAGE_BYTES);
	(void)state;
	memcpy(page, right_page, PAGE_BYTES);
	page->layout ^= 1;
	memset(page->library, '9', sizeof page->library);
	assert_int_equal(trace_read(&p, page, PAGE_BYTES, "Process 17"), TUTTI_ERR_UNSUPPORTED);
	assert_non_null(strstr(last_error(), "Process 17 uses another version of Tutti (99999"));
	page->magic ^= 1;
	assert_int_equal(trace_read(&p, page, PAGE_BYTES, "Process 17"), TUTTI_ERR_INVALID);
	free(page);
}

static char *right_file(size_t *bytes)
{
	struct trace_process p = {0};
	char *text = NULL;
	assert_int_equal(trace_read(&p, (struct trace_page *)(void *)right_page, PAGE_BYTES, "A"),
			 TUTTI_OK);
	assert_int_equal(p.comm_count, 1);
	p.comms[0].op_count = 20;
	FILE *file = open_memstream(&text, bytes);
	trace_write(file, &p, 1);
	fclose(file);
	trace_process_free(&p);
	return text;
}

/* All that merge does with it. */
static bool use_file(const char *text)
{
	struct log log = {0};
	struct parts parts = {0};
	char why[300] = "", *report = NULL;
	size_t report_bytes;
	bool is_read = load_text(&log, text, why, sizeof why);

	assert_true(is_read || why[0]);
	FILE *file = open_memstream(&report, &report_bytes);
	parts_find(&parts, &log);
	clocks_align(&log, &parts, file);
	late_report(&log, &parts, true, file);
	trace_write(file, log.processes, log.count);
	fclose(file);
	free(report);
	parts_free(&parts);
	log_free(&log);
	return is_read;
}

static void test_files(void **state)
{
	char why[300];
	static const char *const pieces[] = {
		"\"",    "[",        "{",    "}",  "]",   ",",  "-",
		"1e308", "99999999", "null", "\\", "0.5", "-1", "9007199254740993"};
	size_t bytes;
	char *right = right_file(&bytes), *text = malloc(bytes + 64);
	int read = 0;
	(void)state;
	if (!load_text(&(struct log){0}, "{}", why, sizeof why) &&
	    strstr(why, "jansson was not installed"))
		skip_because("jansson is not installed");
	assert_true(use_file(right));
	for (int i = 0; i < whole_or(FILES, FILES / 3, FILES); i++) {
		size_t at = next() % bytes, out = next() % 12;
		const char *piece = pieces[next() % (sizeof pieces / sizeof *pieces)];
		size_t keep = bytes - at > out ? bytes - at - out : 0;
		memcpy(text, right, at);
		memcpy(text + at, piece, strlen(piece));
		memcpy(text + at + strlen(piece), right + bytes - keep, keep);
		text[at + strlen(piece) + keep] = '\0';
		read += use_file(text);
	}
	print_message("%d of %d damaged files were read\n", read, FILES);
	for (size_t length = 0; length < bytes - 2; length += 1 + next() % 8) {
		memcpy(text, right, length);
		text[length] = '\0';
		assert_false(use_file(text));
	}
	free(text);
	free(right);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),     cmocka_unit_test(test_random_slots),
		cmocka_unit_test(test_cut_pages), cmocka_unit_test(test_other_version),
		cmocka_unit_test(test_files),
	};
	const char *given = getenv("SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : 20261122;
	printf("seed %llu (SEED=... repeats it)\n", (unsigned long long)seed);
	state_of_random = seed | 1;
	right_page = aligned_alloc(4096, PAGE_BYTES);
	make_page();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(right_page);
	return failed;
}
