/* no_tsan: it has one thread */
/* What would break: exchange of files with other programs, and reading a file that is not what it
 * claims to be. */
#include "tests/train/saved.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static char dir[64], path[200];

static int make_folder(void **state)
{
	saved_folder(dir);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	return 0;
}

static int remove_folder(void **state)
{
	saved_remove(dir);
	return 0;
}

static struct safetensor tensor(const char *name, tutti_dtype dtype, int ndim, int64_t a, int64_t b)
{
	return (struct safetensor){
		.name = (char *)name, .type = stored_type_of(dtype), .ndim = ndim, .shape = {a, b}};
}

static void bytes(void **state)
{
	const struct safetensor list[] = {
		tensor("b", TUTTI_U8, 1, 3, 0),
		tensor("z", TUTTI_F32, 2, 2, 1),
		tensor("a", TUTTI_F32, 0, 0, 0),
	};
	const char *expected = "{\"__metadata__\":{\"format\":\"pt\"},"
			       "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
			       "\"z\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[4,12]},"
			       "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[12,15]}}";
	struct safetensors file;
	uint64_t length;

	assert_int_equal(safetensors_plan(&file, "f", list, 3, "pt"), TUTTI_OK);
	memcpy(&length, file.header, 8);
	assert_int_equal(length % 8, 0);
	assert_true(length >= strlen(expected) && length < strlen(expected) + 8);
	assert_memory_equal(file.header + 8, expected, strlen(expected));
	for (size_t i = strlen(expected); i < length; i++)
		assert_int_equal(file.header[8 + i], ' ');
	assert_true(file.data_at == 8 + length && file.file_bytes == file.data_at + 15);
	assert_true(safetensors_find(&file, "b")->begin == 12);
	assert_null(safetensors_find(&file, "c"));
	safetensors_finish(&file);
}

/* The output of a command. The caller frees it. */
static char *output_of(const char *command)
{
	FILE *pipe = popen(command, "r");
	char *text = calloc(1, 100000);

	assert_non_null(pipe);
	size_t n = fread(text, 1, 99999, pipe);
	assert_true(n > 0 && n < 99999);
	assert_int_equal(pclose(pipe), 0);
	return text;
}

static char *python(const char *what)
{
	char command[600];
	const char *source = getenv("SOURCE_DIR");

	snprintf(command, sizeof command,
		 "python3 '%s/tests/train/checkpoint/safetensors.py' %s '%s' && echo done",
		 source ? source : ".", what, path);
	return output_of(command);
}

/* Writes each tensor by itself, the last one first, as ranks that share the file would. */
static void write_file(const struct safetensors *file)
{
	int fd;

	assert_int_equal(disk_create(&fd, path), TUTTI_OK);
	for (size_t i = file->count; i-- > 0;) {
		const struct safetensor *t = &file->tensors[i];
		char values[4096];
		saved_fill(values, 1, 0, t->begin, t->end);
		assert_int_equal(disk_write(fd, path, values, (size_t)(t->end - t->begin),
					    file->data_at + t->begin),
				 TUTTI_OK);
	}
	assert_int_equal(disk_write(fd, path, file->header, (size_t)file->data_at, 0), TUTTI_OK);
	assert_int_equal(disk_resize(fd, path, file->file_bytes), TUTTI_OK);
	close(fd);
}

static void assert_same(const struct safetensors *a, const struct safetensors *b)
{
	assert_true(a->count == b->count && a->data_at == b->data_at &&
		    a->file_bytes == b->file_bytes);
	assert_memory_equal(a->header, b->header, a->data_at);
	for (size_t i = 0; i < a->count; i++) {
		const struct safetensor *x = &a->tensors[i], *y = &b->tensors[i];
		assert_string_equal(x->name, y->name);
		assert_true(x->type == y->type && x->begin == y->begin && x->end == y->end);
		assert_int_equal(x->ndim, y->ndim);
		assert_memory_equal(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape);
	}
}

static void python_reads(void **state)
{
	struct safetensor list[SAVED_TENSORS];
	struct safetensors file, read;
	uint64_t size;
	int fd;

	if (!saved_has_python())
		skip();
	for (int i = 0; i < SAVED_TENSORS; i++) {
		const struct checkpoint_tensor *t = &saved_tensors[i];
		list[i] = tensor(t->name, t->dtype, t->ndim, t->shape[0], t->shape[1]);
		list[i].shape[2] = t->shape[2];
		if (i == SAVED_TENSORS - 1) /* v has the name of param */
			list[i] = tensor("last", TUTTI_F64, 2, 1, 50);
	}
	assert_int_equal(safetensors_plan(&file, path, list, SAVED_TENSORS, "pt"), TUTTI_OK);
	write_file(&file);
	assert_int_equal(disk_open(&fd, &size, path), TUTTI_OK);
	assert_int_equal(safetensors_read(&read, fd, size, path), TUTTI_OK);
	close(fd);
	assert_same(&file, &read);
	safetensors_finish(&file);
	safetensors_finish(&read);

	char *said = python("read");
	assert_non_null(strstr(said, "metadata {\"format\": \"pt\"}\n\"counts\" I64 [3] 0 "));
	assert_non_null(strstr(said, "\"last\" F64 [1, 50] 24 "));
	assert_non_null(strstr(said, "\"say \\\"wte\\\"/\\\\[0]@3\" F32 [7, 100] "));
	assert_non_null(strstr(said, "\"gr\\u00f6\\u00dfe.\\u65e5\\u672c\" F32 [1001] "));
	assert_non_null(strstr(said, "\"empty\" F32 [5, 0] 820 0\n"));
	assert_non_null(strstr(said, "\"scalar\" BF16 [] "));
	assert_non_null(strstr(said, "\ndone\n"));
	free(said);
}

static void python_writes(void **state)
{
	struct safetensors read;
	uint64_t size;
	float values[4];
	int fd;

	if (!saved_has_python())
		skip();
	free(python("write"));
	assert_int_equal(disk_open(&fd, &size, path), TUTTI_OK);
	assert_int_equal(safetensors_read(&read, fd, size, path), TUTTI_OK);
	assert_int_equal(read.count, 3);
	const struct safetensor *second = safetensors_find(&read, "second");
	assert_true(second && second->ndim == 2 && second->type->dtype == TUTTI_F32);
	assert_int_equal(disk_read(fd, path, values, 16, read.data_at + second->begin), TUTTI_OK);
	assert_true(values[0] == 1 && values[1] == -2 && values[2] == 3.5f && values[3] == 4);
	assert_non_null(safetensors_find(&read, "first ü"));
	assert_true(safetensors_find(&read, "none")->shape[1] == 0);
	safetensors_finish(&read);
	close(fd);
}

static void assert_refused(tutti_status status, const char *words)
{
	if (status != TUTTI_ERR_INVALID || !strstr(tutti_comm_error(NULL), words))
		fail_msg("'%s' is not in '%s', with '%s'", words, tutti_comm_error(NULL),
			 tutti_status_string(status));
}

static void refused_plans(void **state)
{
	struct safetensor list[2] = {tensor("a", TUTTI_F32, 1, 3, 0),
				     tensor("a", TUTTI_U8, 1, 3, 0)};
	struct safetensors file;

	assert_refused(safetensors_plan(&file, "f", list, 2, NULL), "two tensors 'a'");
	list[0].name = (char *)"__metadata__";
	assert_refused(safetensors_plan(&file, "f", list, 2, NULL), "reserves");
	list[0].name = (char *)"b\xff";
	assert_refused(safetensors_plan(&file, "f", list, 2, NULL), "not UTF-8");
	list[0] = tensor("b", TUTTI_F32, 2, INT64_C(1) << 40, INT64_C(1) << 30);
	assert_refused(safetensors_plan(&file, "f", list, 2, NULL),
		       "more elements than a file can");
	list[0] = tensor("b", TUTTI_F32, 1, -1, 0);
	assert_refused(safetensors_plan(&file, "f", list, 2, NULL),
		       "more elements than a file can");
	struct safetensor many[9];
	for (int i = 0; i < 9; i++)
		many[i] = tensor((const char *[]){"0", "1", "2", "3", "4", "5", "6", "7", "8"}[i],
				 TUTTI_U8, 1, INT64_C(1) << 59, 0);
	assert_refused(safetensors_plan(&file, "f", many, 9, NULL), "more than 2^62 bytes");
}

/* A file of a header and so many bytes of data. length: the header's claimed length, or 0 for the
 * true one. */
static tutti_status read_planted(const char *header, size_t data, uint64_t length)
{
	struct safetensors read;
	uint64_t size, said = length ? length : strlen(header);
	char zeros[100] = {0};
	int fd;

	assert_int_equal(disk_create(&fd, path), TUTTI_OK);
	assert_int_equal(disk_write(fd, path, &said, 8, 0), TUTTI_OK);
	assert_int_equal(disk_write(fd, path, header, strlen(header), 8), TUTTI_OK);
	assert_int_equal(disk_write(fd, path, zeros, data, 8 + strlen(header)), TUTTI_OK);
	close(fd);
	assert_int_equal(disk_open(&fd, &size, path), TUTTI_OK);
	tutti_status status = safetensors_read(&read, fd, size, path);
	if (status == TUTTI_OK)
		safetensors_finish(&read);
	close(fd);
	return status;
}

#define A "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"
#define ENTRY(type, shape, offsets)                                                                \
	"{\"a\":{\"dtype\":" type ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void refused_files(void **state)
{
	const struct {
		const char *header;
		size_t data;
		const char *words;
	} wrong[] = {
		{"", 0, "cannot be read: it does not begin with {"},
		{" {}", 0, "does not begin with {"},
		{"[]", 0, "does not begin with {"},
		{"{\"a\":", 0, "cannot be read: "},
		{"{} x", 0, "end of file expected"},
		{"{\"\xff\":{}}", 0, "unable to decode byte 0xff"},
		{"{" A "," A "}", 2, "duplicate"},
		{"{\"a\":3}", 0, "'a' is not dtype, shape and data_offsets"},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 0, "'a' is not dtype, shape and"},
		{ENTRY("\"F33\"", "[1]", "[0,1]"), 1, "'a' has an unknown dtype"},
		{ENTRY("3", "[1]", "[0,1]"), 1, "'a' has an unknown dtype"},
		{ENTRY("\"U8\"", "1", "[0,1]"), 1, "'a' has no shape"},
		{ENTRY("\"U8\"", "[-1]", "[0,1]"), 1, "'a' has no shape"},
		{ENTRY("\"U8\"", "[1.0]", "[0,1]"), 1, "'a' has no shape"},
		{ENTRY("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "'a' has no shape"},
		{ENTRY("\"U8\"", "[1]", "[0,1,2]"), 1, "'a' does not have two data_offsets"},
		{ENTRY("\"U8\"", "[1]", "[-1,0]"), 1, "'a' does not have two data_offsets"},
		{ENTRY("\"U8\"", "[1]", "[0,99999999999999999999]"), 1, "too big integer"},
		{ENTRY("\"U8\"", "[1]", "[0,9223372036854775807]"), 1, "ends outside of the file"},
		{ENTRY("\"U8\"", "[2]", "[0,1]"), 1, "'a' has 1 bytes, but its shape in U8 has 2"},
		{ENTRY("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0,
		 "more elements than a file"},
		{ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0,
		 "more elements than a file"},
		{ENTRY("\"F4\"", "[3]", "[0,1]"), 1, "'a' ends in the middle of a byte"},
		{ENTRY("\"U8\"", "[0]", "[1,0]"), 1, "'a', bytes 1 to 0 of 1, leaves a gap"},
		{"{" A "}", 1, "'a', bytes 0 to 2 of 1, ends outside of the file"},
		{"{" A "}", 3, "has 3 bytes of data, but its tensors have 2"},
		{"{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3,
		 "'b', bytes 1 to 3 of 3, overlaps"},
		{"{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}", 4,
		 "'b', bytes 3 to 4 of 4, leaves a gap"},
		{"{\"__metadata__\":3}", 0, "'__metadata__' is no object"},
		{"{\"__metadata__\":{\"a\":3}}", 0,
		 "'__metadata__' has a value that is not a string"},
	};

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_refused(read_planted(wrong[i].header, wrong[i].data, 0), wrong[i].words);
		assert_refused(TUTTI_ERR_INVALID, path);
	}
	assert_refused(read_planted("{}", 0, 3), "has 3 bytes, of a file of 10");
	assert_refused(read_planted("{}", 90, 100000001), "has 100000001 bytes");
	assert_refused(read_planted("{}", 0, UINT64_MAX), "has 18446744073709551615 bytes");
	assert_int_equal(truncate(path, 7), 0);
	struct safetensors read;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_refused(safetensors_read(&read, fd, 7, path), "ends after 7 bytes");
	close(fd);
	/* Unusual headers that are valid. */
	assert_int_equal(read_planted("{}", 0, 0), TUTTI_OK);
	assert_int_equal(read_planted("{" A "}  \n ", 2, 0), TUTTI_OK);
	assert_int_equal(read_planted(ENTRY("\"F4\"", "[4]", "[0,2]"), 2, 0), TUTTI_OK);
	assert_int_equal(read_planted(ENTRY("\"F32\"", "[0,9223372036854775807]", "[0,0]"), 0, 0),
			 TUTTI_OK);
}

/* Sizes and offsets beyond 32 bits, in a file that is nearly all hole. */
static void beyond_4_gib(void **state)
{
	const struct safetensor list[] = {
		tensor("a", TUTTI_F32, 2, 3, INT64_C(1) << 31),
		tensor("b", TUTTI_F32, 1, 2, 0),
	};
	struct safetensors file, read;
	const float values[2] = {5, 6};
	float got[2];
	uint64_t size;
	int fd;

	assert_int_equal(safetensors_plan(&file, path, list, 2, NULL), TUTTI_OK);
	assert_true(file.file_bytes == file.data_at + (UINT64_C(3) << 33) + 8);
	assert_int_equal(disk_create(&fd, path), TUTTI_OK);
	assert_int_equal(disk_write(fd, path, file.header, (size_t)file.data_at, 0), TUTTI_OK);
	assert_int_equal(
		disk_write(fd, path, values, 8, file.data_at + safetensors_find(&file, "b")->begin),
		TUTTI_OK);
	close(fd);
	assert_int_equal(disk_open(&fd, &size, path), TUTTI_OK);
	assert_int_equal(safetensors_read(&read, fd, size, path), TUTTI_OK);
	assert_same(&file, &read);
	assert_int_equal(
		disk_read(fd, path, got, 8, read.data_at + safetensors_find(&read, "b")->begin),
		TUTTI_OK);
	assert_true(got[0] == 5 && got[1] == 6);
	close(fd);
	safetensors_finish(&file);
	safetensors_finish(&read);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes),
		cmocka_unit_test_setup_teardown(python_reads, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(python_writes, make_folder, remove_folder),
		cmocka_unit_test(refused_plans),
		cmocka_unit_test_setup_teardown(refused_files, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(beyond_4_gib, make_folder, remove_folder),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
