/* Would break: a job that imports a safetensors file that somebody else has made. What is read can
 * be written, and is the same then. */
#include "fuzz.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"

#include <string.h>
#include <unistd.h>

/* One behind the other, to the end of the file, and found by their names. */
static void check(const struct safetensors *file)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < file->count; i++) {
		const struct safetensor *tensor = &file->tensors[i];
		MUST(safetensors_find(file, tensor->name) == tensor);
		MUST(tensor->begin <= tensor->end);
		bytes += tensor->end - tensor->begin;
	}
	MUST(file->data_at + bytes == file->file_bytes);
}

static void write_again(const struct safetensors *file)
{
	struct safetensors planned, again = {0};

	MUST(safetensors_plan(&planned, "planned", file->tensors, file->count, NULL) == TUTTI_OK);
	MUST(planned.file_bytes - planned.data_at == file->file_bytes - file->data_at);
	MUST(safetensors_parse(&again, "again", planned.header + 8, planned.data_at - 8) ==
	     TUTTI_OK);
	MUST(safetensors_check(&again, "again", planned.file_bytes - planned.data_at) == TUTTI_OK);
	MUST(again.count == file->count);
	for (size_t i = 0; i < file->count; i++)
		MUST(strcmp(again.tensors[i].name, file->tensors[i].name) == 0 &&
		     again.tensors[i].type == file->tensors[i].type);
	safetensors_finish(&planned);
	safetensors_finish(&again);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	char path[FUZZ_PATH_BYTES];
	struct safetensors file;
	uint64_t size;
	int memory = input_file(&in, path), fd;

	MUST(disk_open(&fd, &size, path) == TUTTI_OK && size == n);
	if (safetensors_read(&file, fd, size, path) == TUTTI_OK) {
		check(&file);
		write_again(&file);
		safetensors_finish(&file);
	} else {
		MUST(strstr(tutti_comm_error(NULL), path) || jansson_needed() != TUTTI_OK);
	}
	close(fd);
	close(memory);
}
