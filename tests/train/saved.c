/* A small model's checkpoints. */
#include "tests/train/saved.h"

#include "train/checkpoint/safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME_OF_127                                                                                \
	"0123456789012345678901234567890123456789012345678901234567890123"                         \
	"012345678901234567890123456789012345678901234567890123456789012"

const struct checkpoint_tensor saved_tensors[SAVED_TENSORS] = {
	{.kind = "param", .name = "say \"wte\"/\\[0]@3", .ndim = 2, .shape = {7, 100}},
	{.kind = "param", .name = "größe.日本", .ndim = 1, .shape = {1001}},
	{.kind = "m", .name = NAME_OF_127, .ndim = 3, .shape = {33, 3, 1}},
	{.kind = "state.0", .name = "sampler", .dtype = TUTTI_U8, .ndim = 1, .shape = {13}},
	{.kind = "buffer", .name = "empty", .ndim = 2, .shape = {5, 0}},
	{.kind = "param", .name = "scalar", .dtype = TUTTI_BF16},
	{.kind = "trainer", .name = "counts", .dtype = TUTTI_I64, .ndim = 1, .shape = {3}},
	{.kind = "v", .name = "größe.日本", .dtype = TUTTI_F64, .ndim = 1, .shape = {5000}},
};

static uint64_t count_of(int tensor)
{
	uint64_t count = 0;

	if (!stored_count(&count, saved_tensors[tensor].ndim, saved_tensors[tensor].shape))
		abort();
	return count;
}

static size_t element_of(int tensor)
{
	return stored_type_of(saved_tensors[tensor].dtype)->bits / 8;
}

void saved_fill(char *to, int64_t step, int tensor, uint64_t begin, uint64_t end)
{
	for (uint64_t i = begin; i < end; i++) {
		uint64_t x = i + 1000003 * (uint64_t)step + 7919 * (uint64_t)tensor;
		x *= 0x9e3779b97f4a7c15u;
		to[i - begin] = (char)(x >> 56);
	}
}

static tutti_status write_values(struct checkpoint_writer *save, const struct saving *saving,
				 const struct checkpoint_range *ranges)
{
	tutti_status status = TUTTI_OK;

	for (int t = 0; t < SAVED_TENSORS && status == TUTTI_OK; t++) {
		size_t element = element_of(t);
		size_t bytes = (size_t)ranges[t].count * element, done = 0;
		uint64_t begin = ranges[t].first * element;
		char *values = malloc(bytes + 1);
		saved_fill(values, saving->step, t, begin, begin + bytes);
		while (done < bytes && status == TUTTI_OK) {
			size_t n = saving->portion && saving->portion < bytes - done
					   ? saving->portion
					   : bytes - done;
			status = checkpoint_writer_values(save, (size_t)t, values + done, n);
			done += n;
		}
		free(values); /* it was copied */
	}
	return status;
}

static tutti_status write_rank(const struct saving *saving, const char *temporary, int rank,
			       char **text, size_t *bytes)
{
	struct checkpoint_part part = {.dir = saving->dir,
				       .temporary = temporary,
				       .step = saving->step,
				       .rank = rank,
				       .world_size = saving->ranks,
				       .piece_bytes = saving->piece_bytes};
	struct checkpoint_range ranges[SAVED_TENSORS];
	struct checkpoint_writer *save;

	for (int t = 0; t < SAVED_TENSORS; t++) {
		uint64_t n = count_of(t), ranks = (uint64_t)saving->ranks, r = (uint64_t)rank;
		ranges[t].tensor = saved_tensors[t];
		ranges[t].first = n * r / ranks;
		ranges[t].count = n * (r + 1) / ranks - ranges[t].first;
		if (saving->missing_rank == rank + 1)
			ranges[t].count = 0;
	}
	tutti_status status = checkpoint_writer_create(&save, &part, ranges, SAVED_TENSORS);
	if (status != TUTTI_OK)
		return status;
	status = write_values(save, saving, ranges);
	if (status == TUTTI_OK)
		status = checkpoint_writer_finish(save, text, bytes);
	checkpoint_writer_destroy(save);
	return status;
}

tutti_status saved_commit(struct checkpoint_dir *made, char *const *texts, const size_t *bytes,
			  int ranks)
{
	char *all;
	size_t count;
	FILE *stream = open_memstream(&all, &count);

	for (int r = 0; r < ranks; r++)
		fwrite(texts[r], 1, bytes[r], stream);
	fclose(stream);
	tutti_status status = checkpoint_dir_commit(made, all, bytes, ranks);
	free(all);
	return status;
}

tutti_status saved_write(const struct saving *saving)
{
	struct checkpoint_dir made;
	char **texts = calloc((size_t)saving->ranks, sizeof *texts);
	size_t *bytes = calloc((size_t)saving->ranks, sizeof *bytes);
	tutti_status status = checkpoint_dir_make(&made, saving->dir, saving->step);

	if (status == TUTTI_OK) {
		for (int r = 0; r < saving->ranks && status == TUTTI_OK; r++)
			status = write_rank(saving, made.temporary, r, &texts[r], &bytes[r]);
		if (status == TUTTI_OK)
			status = saved_commit(&made, texts, bytes, saving->ranks);
		checkpoint_dir_finish(&made);
	}
	for (int r = 0; r < saving->ranks; r++)
		free(texts[r]);
	free(texts);
	free(bytes);
	return status;
}

static tutti_status read_share(struct checkpoint *checkpoint, int t, int rank, int ranks,
			       bool *is_right)
{
	const struct checkpoint_tensor *tensor = checkpoint_index_find(
		checkpoint_index_of(checkpoint), saved_tensors[t].kind, saved_tensors[t].name);

	if (!tensor || tensor->dtype != saved_tensors[t].dtype ||
	    tensor->ndim != saved_tensors[t].ndim || tensor->count != count_of(t) ||
	    memcmp(tensor->shape, saved_tensors[t].shape, sizeof tensor->shape) != 0) {
		*is_right = false;
		return TUTTI_OK;
	}
	uint64_t first = tensor->count * (uint64_t)rank / (uint64_t)ranks;
	uint64_t count = tensor->count * (uint64_t)(rank + 1) / (uint64_t)ranks - first;
	size_t element = element_of(t), bytes = (size_t)count * element;
	char *got = malloc(2 * bytes + 1), *expected = got + bytes;
	tutti_status status = checkpoint_read(checkpoint, tensor, first, count, got);
	saved_fill(expected, checkpoint_index_of(checkpoint)->step, t, first * element,
		   first * element + bytes);
	*is_right &= memcmp(got, expected, bytes) == 0;
	free(got);
	return status;
}

tutti_status saved_read(const char *path, int ranks, int64_t *step, bool *is_right)
{
	tutti_status status = TUTTI_OK;

	*is_right = true;
	for (int r = 0; r < ranks && status == TUTTI_OK; r++) {
		struct checkpoint *checkpoint;
		status = checkpoint_open(&checkpoint, path);
		if (status != TUTTI_OK)
			return status;
		*step = checkpoint_index_of(checkpoint)->step;
		*is_right &= checkpoint_index_of(checkpoint)->tensor_count == SAVED_TENSORS;
		for (int t = 0; t < SAVED_TENSORS && status == TUTTI_OK; t++)
			status = read_share(checkpoint, t, r, ranks, is_right);
		checkpoint_close(checkpoint);
	}
	return status;
}

/* Containers have 64 MiB of it, which tests that save at the same time fill. */
static bool is_roomy(const char *path)
{
	struct statvfs about;

	return access(path, W_OK) == 0 && statvfs(path, &about) == 0 &&
	       (uint64_t)about.f_bavail * about.f_frsize >= UINT64_C(1) << 30;
}

void saved_folder(char path[64])
{
	snprintf(path, 64, "%s/tutti-saved-XXXXXX", is_roomy("/dev/shm") ? "/dev/shm" : "/tmp");
	if (!mkdtemp(path))
		abort();
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	(void)about, (void)kind, (void)at;
	return remove(path);
}

void saved_remove(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int saved_count(const char *path, const char *start)
{
	DIR *folder = opendir(path);
	int n = 0;

	for (struct dirent *entry; folder && (entry = readdir(folder));)
		n += strncmp(entry->d_name, start, strlen(start)) == 0;
	if (folder)
		closedir(folder);
	return n;
}

bool saved_has_python(void)
{
	bool has = system("command -v python3 >/dev/null") == 0;

	if (!has)
		printf("Python 3 is not installed\n");
	return has;
}

int saved_refusal(void)
{
	struct checkpoint_dir made;
	struct checkpoint_writer *save;
	struct checkpoint_part part = {.dir = ".", .temporary = ".", .world_size = 1};
	struct checkpoint *checkpoint;

	puts("jansson is not installed");
	if (checkpoint_dir_make(&made, "/nowhere/nothing", 1) != TUTTI_ERR_UNSUPPORTED ||
	    checkpoint_writer_create(&save, &part, NULL, 0) != TUTTI_ERR_UNSUPPORTED ||
	    checkpoint_open(&checkpoint, "/nowhere/nothing") != TUTTI_ERR_UNSUPPORTED)
		return 1;
	return strstr(tutti_comm_error(NULL), "(Debian: libjansson-dev)") ? 77 : 1;
}

int saved_fds(void)
{
	return saved_count("/proc/self/fd", "");
}

char saved_dir[64];

int saved_setup(void **state)
{
	(void)state;
	saved_folder(saved_dir);
	return 0;
}

int saved_teardown(void **state)
{
	(void)state;
	saved_remove(saved_dir);
	return 0;
}
