/* Would break: a job that goes on from a checkpoint whose index somebody else has made or changed.
 * What is read can be written, and is the same then; and no file is ever opened but those of ranks.
 */
#include "fuzz.h"

#include "train/checkpoint/checkpoint_index.h"

#include <string.h>

static void check(const struct checkpoint_index *index)
{
	MUST(index->world_size > 0 && index->file_count <= (size_t)index->world_size);
	for (size_t i = 0; i < index->tensor_count; i++) {
		const struct checkpoint_tensor *tensor = &index->tensors[i];
		MUST(checkpoint_index_find(index, tensor->kind, tensor->name) == tensor);
		for (size_t p = 0; p < tensor->piece_count; p++) {
			const struct checkpoint_piece *piece = &tensor->pieces[p];
			MUST(piece->rank >= 0 && piece->rank < index->world_size);
			MUST(piece->count > 0 && piece->first < tensor->count &&
			     piece->count <= tensor->count - piece->first);
		}
	}
}

static void write_again(const struct checkpoint_index *index)
{
	struct checkpoint_index again;
	char *text, *text_again;
	size_t bytes, bytes_again;

	MUST(checkpoint_index_print(index, &text, &bytes) == TUTTI_OK);
	MUST(checkpoint_index_parse(&again, "again", text, bytes) == TUTTI_OK);
	MUST(checkpoint_index_print(&again, &text_again, &bytes_again) == TUTTI_OK);
	MUST(bytes == bytes_again && memcmp(text, text_again, bytes) == 0);
	free(text);
	free(text_again);
	checkpoint_index_finish(&again);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	char *text = input_text(&in);
	struct checkpoint_index index, all = {0};

	if (checkpoint_index_parse(&index, "fuzz", text, n) == TUTTI_OK) {
		check(&index);
		write_again(&index);
		if (checkpoint_index_check(&index) == TUTTI_OK)
			MUST(index.file_count == (size_t)index.world_size);
		MUST(checkpoint_index_add(&all, &index) == TUTTI_OK);
		MUST(index.tensor_count == 0);
		MUST(checkpoint_index_join(&all) == TUTTI_OK);
		check(&all);
		checkpoint_index_finish(&all);
	} else {
		MUST(strlen(tutti_comm_error(NULL)) > 0);
	}
	free(text);
}
