/* What would break: an index whose splits are damaged or newer than its version, read as if they
 * were not there: the values would be in another order.
 */
#include "tests/train/saved.h"

#include "train/base/base.h"
#include "train/checkpoint/checkpoint_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* One parameter of shape [6, 4] in one file; `split` is what stands between shape and pieces. */
static tutti_status parse(struct checkpoint_index *index, int version, const char *split)
{
	char text[600];

	snprintf(text, sizeof text,
		 "{\"format\":\"tutti checkpoint\",\"version\":%d,\"step\":200,\"world_size\":1,"
		 "\"files\":[{\"name\":\"part-00000-of-00001.safetensors\",\"bytes\":200,"
		 "\"header_crc32c\":0}],\"tensors\":[{\"kind\":\"param\",\"name\":\"w\","
		 "\"dtype\":\"F32\",\"shape\":[6,4],%s\"pieces\":[{\"file\":"
		 "\"part-00000-of-00001.safetensors\",\"key\":\"param/w@0\",\"begin\":0,"
		 "\"end\":24,\"crc32c\":7}]}]}",
		 version, split);
	return checkpoint_index_parse(index, "text", text, strlen(text));
}

static void read_and_written(void **state)
{
	struct checkpoint_index index, again;
	char *text;
	size_t bytes;

	assert_int_equal(parse(&index, 2, "\"split\":{\"dim\":1,\"parts\":2},"), TUTTI_OK);
	assert_int_equal(checkpoint_index_print(&index, &text, &bytes), TUTTI_OK);
	assert_non_null(strstr(text, "\"version\": 2,"));
	assert_int_equal(checkpoint_index_parse(&again, "again", text, bytes), TUTTI_OK);
	assert_int_equal(again.tensors[0].order.dim, 1);
	assert_int_equal(again.tensors[0].order.parts, 2);
	free(text);
	checkpoint_index_finish(&again);
	checkpoint_index_finish(&index);
}

/* A file that older builds wrote stays one that they read. */
static void without_split(void **state)
{
	struct checkpoint_index index;
	char *text;
	size_t bytes;

	for (int version = 1; version <= 2; version++) {
		assert_int_equal(parse(&index, version, ""), TUTTI_OK);
		assert_int_equal(checkpoint_index_print(&index, &text, &bytes), TUTTI_OK);
		assert_non_null(strstr(text, "\"version\": 1,"));
		free(text);
		checkpoint_index_finish(&index);
	}
}

static void refused(void **state)
{
	static const struct {
		int version;
		const char *split;
		tutti_status status;
		const char *words;
	} cases[] = {
		{1, "\"split\":{\"dim\":1,\"parts\":2},", TUTTI_ERR_INVALID,
		 "version 1 has no splits"},
		{0, "", TUTTI_ERR_UNSUPPORTED, "another version than 1 and 2"},
		{3, "", TUTTI_ERR_UNSUPPORTED, "another version than 1 and 2"},
		{2, "\"split\":{\"dim\":2,\"parts\":2},", TUTTI_ERR_INVALID,
		 "invalid split of 'w'"},
		{2, "\"split\":{\"dim\":1,\"parts\":1},", TUTTI_ERR_INVALID,
		 "invalid split of 'w'"},
		{2, "\"split\":{\"dim\":1,\"parts\":5},", TUTTI_ERR_INVALID,
		 "invalid split of 'w'"},
		{2, "\"split\":{\"parts\":2},", TUTTI_ERR_INVALID, "invalid split of 'w'"},
		{2, "\"split\":null,", TUTTI_ERR_INVALID, "invalid split of 'w'"},
	};
	struct checkpoint_index index;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(parse(&index, cases[i].version, cases[i].split), cases[i].status);
		assert_non_null(strstr(tutti_comm_error(NULL), cases[i].words));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_and_written),
		cmocka_unit_test(without_split),
		cmocka_unit_test(refused),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
