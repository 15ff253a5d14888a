/* What would break: a piece that is larger than 4 GiB, in a checkpoint of another number of ranks.
 */
#include "tests/train/saved.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit.h"

static char dir[64];

/* 12 GiB of f16 and three elements: more than 32 bits of either. */
static const uint64_t giant = UINT64_C(3) << 31;
static const uint16_t behind[3] = {1, 2, 3};

static struct checkpoint_tensor giant_tensor(void)
{
	return (struct checkpoint_tensor){.kind = "param",
					  .name = "w",
					  .dtype = TUTTI_F16,
					  .ndim = 1,
					  .shape = {(int64_t)giant + 3}};
}

/* The three elements, as rank's. */
static void save_behind(const struct checkpoint_dir *made, int rank, char **text, size_t *bytes)
{
	struct checkpoint_range range = {giant_tensor(), giant, 3};
	struct checkpoint_part part = {
		.dir = dir, .temporary = made->temporary, .step = 1, .rank = rank, .world_size = 2};
	struct checkpoint_writer *save;

	assert_int_equal(checkpoint_writer_create(&save, &part, &range, 1), TUTTI_OK);
	assert_int_equal(checkpoint_writer_values(save, 0, behind, sizeof behind), TUTTI_OK);
	assert_int_equal(checkpoint_writer_finish(save, text, bytes), TUTTI_OK);
	checkpoint_writer_destroy(save);
}

/* Replaces rank 0's file by one piece that is one hole. */
static void plant_hole(const struct checkpoint_dir *made, char **text, size_t *bytes)
{
	struct checkpoint_tensor like = giant_tensor();
	struct checkpoint_index index;
	struct safetensors file;
	char key[CHECKPOINT_KEY_BYTES], name[CHECKPOINT_FILE_BYTES], path[200];

	checkpoint_key(key, &like, 0);
	checkpoint_file_name(name, 0, 2);
	snprintf(path, sizeof path, "%s/%s/%s", dir, made->temporary, name);
	struct safetensor tensor = {.name = key,
				    .type = stored_type_of(TUTTI_F16),
				    .ndim = 1,
				    .shape = {(int64_t)giant}};
	assert_int_equal(safetensors_plan(&file, path, &tensor, 1, NULL), TUTTI_OK);
	assert_int_equal(disk_write_all(path, file.header, (size_t)file.data_at), TUTTI_OK);
	assert_int_equal(truncate(path, (off_t)file.file_bytes), 0);
	assert_int_equal(checkpoint_index_parse(&index, "rank 0", *text, *bytes), TUTTI_OK);
	index.tensors[0].pieces[0] = (struct checkpoint_piece){.first = 0, .count = giant};
	index.files[0].bytes = file.file_bytes;
	index.files[0].header_crc32c = tutti_crc32c(0, file.header, (size_t)file.data_at);
	free(*text);
	assert_int_equal(checkpoint_index_print(&index, text, bytes), TUTTI_OK);
	checkpoint_index_finish(&index);
	safetensors_finish(&file);
}

/* The tensor's second piece lies far beyond 4 GiB and is found without reading the first. */
static void large(void **state)
{
	struct checkpoint_dir made;
	struct checkpoint *checkpoint;
	struct checkpoint_found found;
	char *texts[2];
	size_t bytes[2];
	uint16_t got[3];

	saved_folder(dir);
	assert_int_equal(checkpoint_dir_make(&made, dir, 1), TUTTI_OK);
	for (int rank = 0; rank < 2; rank++)
		save_behind(&made, rank, &texts[rank], &bytes[rank]);
	plant_hole(&made, &texts[0], &bytes[0]);
	assert_int_equal(saved_commit(&made, texts, bytes, 2), TUTTI_OK);
	checkpoint_dir_finish(&made);
	free(texts[0]);
	free(texts[1]);

	assert_int_equal(checkpoint_dir_find(&found, dir), TUTTI_OK);
	assert_int_equal(checkpoint_open(&checkpoint, found.path), TUTTI_OK);
	const struct checkpoint_tensor *w =
		checkpoint_index_find(checkpoint_index_of(checkpoint), "param", "w");
	assert_true(w && w->count == giant + 3);
	assert_int_equal(checkpoint_read(checkpoint, w, giant, 3, got), TUTTI_OK);
	assert_memory_equal(got, behind, sizeof behind);
	/* Treats the sum as checked: 64-bit offsets inside one piece. */
	w->pieces[0].is_sound = true;
	assert_int_equal(checkpoint_read(checkpoint, w, giant - 1, 3, got), TUTTI_OK);
	assert_true(got[0] == 0 && got[1] == 1 && got[2] == 2);
	checkpoint_close(checkpoint);
	saved_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(large)};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
