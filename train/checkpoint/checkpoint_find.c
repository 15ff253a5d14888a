/* Finds the newest whole checkpoint of a folder. */
#include "train/checkpoint/checkpoint_dir.h"

#include "train/base/train_error.h"
#include "train/checkpoint/disk.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { INDEX_LIMIT = 1 << 30, COMMIT_LIMIT = 128 };

static tutti_status read_texts(const char *path, char **index, size_t *bytes, char **commit)
{
	char expected[COMMIT_LIMIT];
	size_t commit_bytes;
	char *index_path = disk_join(path, "index.json"), *commit_path = disk_join(path, "COMMIT");
	tutti_status status = index_path && commit_path ? TUTTI_OK : TUTTI_ERR_MEMORY;

	if (status == TUTTI_OK)
		status = disk_read_all(commit_path, COMMIT_LIMIT, commit, &commit_bytes);
	if (status == TUTTI_OK)
		status = disk_read_all(index_path, INDEX_LIMIT, index, bytes);
	if (status == TUTTI_OK) {
		checkpoint_commit_text(expected, *index, *bytes);
		if (commit_bytes != strlen(expected) ||
		    memcmp(expected, *commit, commit_bytes) != 0)
			status = train_fail(TUTTI_ERR_INVALID,
					    "'%s' does not match the COMMIT file beside it: one of "
					    "them is damaged.",
					    path_shown(index_path));
	}
	free(index_path);
	free(commit_path);
	return status;
}

static tutti_status check_file(const struct checkpoint_index *index, const char *path,
			       const struct checkpoint_file *file)
{
	char name[CHECKPOINT_FILE_BYTES];
	struct stat about;

	checkpoint_file_name(name, file->rank, index->world_size);
	char *file_path = disk_join(path, name);
	if (!file_path)
		return TUTTI_ERR_MEMORY;
	tutti_status status = TUTTI_OK;
	if (stat(file_path, &about) != 0)
		status = disk_fail("Looking at", file_path);
	else if (!S_ISREG(about.st_mode) || (uint64_t)about.st_size != file->bytes)
		status = train_fail(TUTTI_ERR_INVALID,
				    "'%s' has %lld bytes instead of %" PRIu64
				    ": it was truncated or replaced.",
				    path_shown(file_path), (long long)about.st_size, file->bytes);
	free(file_path);
	return status;
}

static tutti_status check_whole(const struct checkpoint_index *index, const char *path)
{
	TRY(checkpoint_index_check(index));
	for (size_t i = 0; i < index->file_count; i++)
		TRY(check_file(index, path, &index->files[i]));
	return TUTTI_OK;
}

tutti_status checkpoint_dir_read(struct checkpoint_index *index, const char *path)
{
	struct checkpoint_index read = {0};
	char *text = NULL, *commit = NULL;
	size_t bytes;
	tutti_status status = read_texts(path, &text, &bytes, &commit);

	if (status == TUTTI_OK)
		status = checkpoint_index_parse(&read, path, text, bytes);
	if (status == TUTTI_OK)
		status = check_whole(&read, path);
	free(text);
	free(commit);
	if (status != TUTTI_OK) {
		checkpoint_index_finish(&read);
		return status;
	}
	*index = read;
	return TUTTI_OK;
}

/* A folder that was renamed, or has the index of another one, does not have the step of its name.
 */
static tutti_status check_step(const struct checkpoint_index *index, const char *path, int64_t step)
{
	if (index->step == step)
		return TUTTI_OK;
	return train_fail(TUTTI_ERR_INVALID,
			  "'%s/index.json' is of step %" PRId64
			  ", but its folder is named for step %" PRId64 ".",
			  path_shown(path), index->step, step);
}

/* Returns OK and sets found->path if the checkpoint is whole; otherwise notes what is wrong. */
static tutti_status try_checkpoint(struct checkpoint_found *found, const char *dir,
				   struct checkpoint_name name)
{
	struct checkpoint_index index = {0};
	char text[CHECKPOINT_NAME_BYTES];

	checkpoint_name_print(text, name);
	char *path = disk_join(dir, text);
	if (!path)
		return TUTTI_ERR_MEMORY;
	tutti_status status = checkpoint_dir_read(&index, path);
	if (status == TUTTI_OK) {
		status = check_step(&index, path, name.step);
		checkpoint_index_finish(&index);
	}
	if (status == TUTTI_OK) {
		found->path = path;
		found->step = name.step;
		return TUTTI_OK;
	}
	free(path);
	/* This process cannot read it, but it may be whole. */
	if (status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_UNSUPPORTED)
		return status;
	if (found->passed_over++ == 0)
		snprintf(found->message, sizeof found->message, "%s", tutti_comm_error(NULL));
	return TUTTI_OK;
}

tutti_status checkpoint_dir_find(struct checkpoint_found *found, const char *dir)
{
	struct checkpoint_found result = {.step = -1};
	struct checkpoint_name *names = NULL;
	struct stat about;
	size_t count = 0;

	if (stat(dir, &about) != 0 && errno == ENOENT) {
		*found = result;
		return TUTTI_OK;
	}
	TRY(checkpoint_names(&names, &count, dir));
	tutti_status status = TUTTI_OK;
	for (size_t i = 0; i < count && status == TUTTI_OK && !result.path; i++)
		status = try_checkpoint(&result, dir, names[i]);
	free(names);
	TRY(status);
	if (!result.path && result.passed_over)
		return train_fail(TUTTI_ERR_INVALID,
				  "All %d checkpoints below '%s' are damaged. The newest: %s",
				  result.passed_over, path_shown(dir), result.message);
	*found = result;
	return TUTTI_OK;
}
