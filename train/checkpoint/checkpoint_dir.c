/* Makes the folder of a checkpoint, and gives it its final name. */
#include "train/checkpoint/checkpoint_dir.h"

#include "train/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10 };

/* *is_mine: the file is locked and no other process has removed it. A file system without locks is
 * used without. */
static tutti_status make_lock(int *lock, bool *is_mine, const char *path)
{
	struct stat about;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0)
		return disk_fail("Creating", path);
	bool is_taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	*is_mine = !is_taken && fstat(fd, &about) == 0 && about.st_nlink > 0;
	if (*is_mine)
		*lock = fd;
	else
		close(fd);
	return TUTTI_OK;
}

/* Tries one new name. *is_mine as in make_lock. */
static tutti_status make_temporary(struct checkpoint_dir *made, bool *is_mine)
{
	char name[CHECKPOINT_NAME_BYTES], lock_path[DISK_PATH_BYTES];
	uint64_t token;

	if (getrandom(&token, sizeof token, 0) != sizeof token)
		return disk_fail("Asking for random bytes for", made->dir);
	checkpoint_temporary_print(name, made->step, token);
	TRY(disk_path(made->path, "%s/%s", made->dir, name));
	TRY(disk_path(lock_path, "%s.lock", made->path));
	TRY(make_lock(&made->lock, is_mine, lock_path));
	if (*is_mine && mkdir(made->path, 0777) != 0) {
		tutti_status status = disk_fail("Making the folder", made->path);
		unlink(lock_path);
		close(made->lock);
		return status;
	}
	if (*is_mine)
		strcpy(made->temporary, name);
	return TUTTI_OK;
}

tutti_status checkpoint_dir_make(struct checkpoint_dir *made, const char *dir, int64_t step)
{
	bool is_mine = false;

	TRY(jansson_needed());
	if (step < 0)
		return fail_invalid("Step %" PRId64 " of a checkpoint is negative.", step);
	*made = (struct checkpoint_dir){.step = step, .lock = -1};
	TRY(disk_path(made->dir, "%s", dir));
	TRY(disk_make_folder(dir));
	checkpoint_sweep(dir);
	for (int i = 0; i < TRIES && !is_mine; i++)
		TRY(make_temporary(made, &is_mine));
	return is_mine ? TUTTI_OK
		       : fail(TUTTI_ERR_SYSTEM,
			      "Another process removes files below '%s' as soon as they are "
			      "made: use a folder of your own.",
			      path_shown(dir));
}

static tutti_status checkpoint_dir_add_up(struct checkpoint_index *all,
					  const struct checkpoint_dir *made, const char *texts,
					  const size_t *bytes, int ranks)
{
	for (int rank = 0; rank < ranks; texts += bytes[rank++]) {
		struct checkpoint_index part;
		char of[40];
		snprintf(of, sizeof of, "sent by rank %d", rank);
		TRY(checkpoint_index_parse(&part, of, texts, bytes[rank]));
		TRY(checkpoint_index_add(all, &part));
	}
	TRY(checkpoint_index_join(all));
	if (all->world_size != ranks || all->step != made->step)
		return fail(TUTTI_ERR_MISMATCH,
			    "The ranks' files are of step %" PRId64
			    " and %d ranks, not of step %" PRId64 " and %d ranks.",
			    all->step, all->world_size, made->step, ranks);
	return checkpoint_index_check(all);
}

/* Writes the index and COMMIT in the temporary folder. */
static tutti_status write_index(const char *path, const struct checkpoint_index *index)
{
	char commit[128], index_path[DISK_PATH_BYTES], commit_path[DISK_PATH_BYTES], *text;
	size_t bytes;

	TRY(disk_path(index_path, "%s/index.json", path));
	TRY(disk_path(commit_path, "%s/COMMIT", path));
	TRY(checkpoint_index_print(index, &text, &bytes));
	tutti_status status = disk_write_all(index_path, text, bytes);
	checkpoint_commit_text(commit, text, bytes);
	free(text);
	TRY(status);
	TRY(disk_write_all(commit_path, commit, strlen(commit)));
	return disk_sync_folder(path);
}

/* Renames the folder to the first free name of its step. An existing folder is never changed. */
static tutti_status checkpoint_dir_give_name(const struct checkpoint_dir *made,
					     struct checkpoint_name *name)
{
	for (int i = 0; i < TRIES; i++, name->again++) {
		char text[CHECKPOINT_NAME_BYTES], target[DISK_PATH_BYTES];
		checkpoint_name_print(text, *name);
		TRY(disk_path(target, "%s/%s", made->dir, text));
		if (rename(made->path, target) == 0)
			return TUTTI_OK;
		if (errno != EEXIST && errno != ENOTEMPTY)
			return disk_fail("Renaming to", target);
	}
	return fail(TUTTI_ERR_SYSTEM,
		    "Another job saves step %" PRId64
		    " below '%s' at the same time: use another folder.",
		    name->step, path_shown(made->dir));
}

/* Removes the checkpoints of the same step that were saved before. */
static void remove_older(const char *dir, struct checkpoint_name name,
			 const struct checkpoint_name *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char text[CHECKPOINT_NAME_BYTES], path[DISK_PATH_BYTES];
		checkpoint_name_print(text, names[i]);
		if (names[i].step == name.step && names[i].again < name.again &&
		    disk_path(path, "%s/%s", dir, text) == TUTTI_OK)
			checkpoint_remove(path);
	}
}

static void checkpoint_dir_unlock(struct checkpoint_dir *made)
{
	char lock_path[DISK_PATH_BYTES];

	if (disk_path(lock_path, "%s.lock", made->path) == TUTTI_OK)
		unlink(lock_path);
	close(made->lock);
	made->temporary[0] = '\0';
}

static tutti_status commit_folder(struct checkpoint_dir *made)
{
	struct checkpoint_name *names, name = {.step = made->step};
	size_t count;

	TRY(checkpoint_names(&names, &count, made->dir));
	for (size_t i = count; i > 0; i--)
		if (names[i - 1].step == name.step)
			name.again = names[i - 1].again + 1;
	tutti_status status = checkpoint_dir_give_name(made, &name);
	if (status == TUTTI_OK) {
		checkpoint_dir_unlock(made);
		status = disk_sync_folder(made->dir);
	}
	if (status == TUTTI_OK)
		remove_older(made->dir, name, names, count);
	free(names);
	return status;
}

tutti_status checkpoint_dir_commit(struct checkpoint_dir *made, const char *texts,
				   const size_t *bytes, int ranks)
{
	struct checkpoint_index all = {0};
	tutti_status status = checkpoint_dir_add_up(&all, made, texts, bytes, ranks);

	if (status == TUTTI_OK)
		status = write_index(made->path, &all);
	checkpoint_index_finish(&all);
	TRY(status);
	return commit_folder(made);
}

void checkpoint_dir_finish(struct checkpoint_dir *made)
{
	if (made->temporary[0]) {
		checkpoint_remove(made->path);
		checkpoint_dir_unlock(made);
	}
	memset(made, 0, sizeof *made);
}
