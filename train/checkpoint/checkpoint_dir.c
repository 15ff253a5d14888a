/* Makes the folder of a checkpoint, and gives it its final name. */
#include "train/checkpoint/checkpoint_dir.h"

#include "train/base/train_error.h"
#include "train/checkpoint/disk.h"
#include "train/checkpoint/jansson_needed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10 };

/* Makes the last part of dir, if it is missing. The user makes its parent. */
static tutti_status make_dir(const char *dir)
{
	char *copy;

	if (mkdir(dir, 0777) != 0)
		return errno == EEXIST ? TUTTI_OK : disk_fail("Making the folder", dir);
	if (!(copy = strdup(dir)))
		return train_no_memory("the name of a folder");
	tutti_status status = disk_sync_folder(dirname(copy));
	free(copy);
	return status;
}

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
	char name[CHECKPOINT_NAME_BYTES];
	char *path = NULL, *lock_path = NULL;
	uint64_t token;
	tutti_status status = TUTTI_OK;

	if (getrandom(&token, sizeof token, 0) != sizeof token)
		return disk_fail("Asking for random bytes for", made->dir);
	snprintf(name, sizeof name, ".step_%08" PRId64 ".tmp-%016" PRIx64, made->step, token);
	if (!(path = disk_join(made->dir, name)) || asprintf(&lock_path, "%s.lock", path) < 0)
		status = train_no_memory("a name");
	if (status == TUTTI_OK)
		status = make_lock(&made->lock, is_mine, lock_path);
	if (status == TUTTI_OK && *is_mine && mkdir(path, 0777) != 0) {
		status = disk_fail("Making the folder", path);
		unlink(lock_path);
		close(made->lock);
	}
	if (status == TUTTI_OK && *is_mine)
		strcpy(made->temporary, name);
	free(path);
	free(lock_path);
	return status;
}

static tutti_status make(struct checkpoint_dir *made)
{
	bool is_mine = false;

	TRY(make_dir(made->dir));
	checkpoint_sweep(made->dir);
	for (int i = 0; i < TRIES && !is_mine; i++)
		TRY(make_temporary(made, &is_mine));
	return is_mine ? TUTTI_OK
		       : train_fail(TUTTI_ERR_SYSTEM,
				    "Another process removes new files below '%s' at once: use a "
				    "folder of your own.",
				    path_shown(made->dir));
}

tutti_status checkpoint_dir_make(struct checkpoint_dir *made, const char *dir, int64_t step)
{
	struct checkpoint_dir making = {.step = step, .lock = -1};

	TRY(jansson_needed());
	if (step < 0)
		return train_fail(TUTTI_ERR_INVALID,
				  "Step %" PRId64 " of a checkpoint is negative.", step);
	if (!(making.dir = strdup(dir)))
		return train_no_memory("the name of a folder");
	tutti_status status = make(&making);
	if (status != TUTTI_OK) {
		free(making.dir);
		return status;
	}
	*made = making;
	return TUTTI_OK;
}

static tutti_status add_up(struct checkpoint_index *all, const struct checkpoint_dir *made,
			   const char *const *texts, const size_t *bytes, int ranks)
{
	for (int rank = 0; rank < ranks; rank++) {
		struct checkpoint_index part;
		char of[40];
		snprintf(of, sizeof of, "sent by rank %d", rank);
		TRY(checkpoint_index_parse(&part, of, texts[rank], bytes[rank]));
		tutti_status status = checkpoint_index_add(all, &part);
		checkpoint_index_finish(&part);
		TRY(status);
	}
	if (all->world_size != ranks || all->step != made->step)
		return train_fail(TUTTI_ERR_MISMATCH,
				  "The ranks' files are of step %" PRId64
				  " and %d ranks, not of step %" PRId64 " and %d ranks.",
				  all->step, all->world_size, made->step, ranks);
	return checkpoint_index_check(all);
}

/* Writes the index and COMMIT in the temporary folder. */
static tutti_status write_index(const char *path, const struct checkpoint_index *index)
{
	char commit[128];
	char *text = NULL, *index_path = disk_join(path, "index.json");
	char *commit_path = disk_join(path, "COMMIT");
	size_t bytes;
	tutti_status status = index_path && commit_path ? TUTTI_OK : TUTTI_ERR_MEMORY;

	if (status == TUTTI_OK)
		status = checkpoint_index_print(index, &text, &bytes);
	if (status == TUTTI_OK)
		status = disk_write_all(index_path, text, bytes);
	if (status == TUTTI_OK) {
		checkpoint_commit_text(commit, text, bytes);
		status = disk_write_all(commit_path, commit, strlen(commit));
	}
	if (status == TUTTI_OK)
		status = disk_sync_folder(path);
	free(text);
	free(index_path);
	free(commit_path);
	return status;
}

/* Renames path to the first free name of its step. An existing folder is never changed. */
static tutti_status give_name(struct checkpoint_name *name, const char *dir, const char *path)
{
	for (int i = 0; i < TRIES; i++, name->again++) {
		char text[CHECKPOINT_NAME_BYTES];
		checkpoint_name_print(text, *name);
		char *target = disk_join(dir, text);
		if (!target)
			return TUTTI_ERR_MEMORY;
		bool is_done = rename(path, target) == 0;
		bool is_taken = !is_done && (errno == EEXIST || errno == ENOTEMPTY);
		tutti_status status =
			is_done || is_taken ? TUTTI_OK : disk_fail("Renaming to", target);
		free(target);
		if (is_done || status != TUTTI_OK)
			return status;
	}
	return train_fail(TUTTI_ERR_SYSTEM,
			  "Another job saves step %" PRId64
			  " below '%s' at the same time: use another folder.",
			  name->step, path_shown(dir));
}

/* Removes the checkpoints of the same step that were saved before. */
static void remove_older(const char *dir, struct checkpoint_name name,
			 const struct checkpoint_name *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char text[CHECKPOINT_NAME_BYTES];
		if (names[i].step != name.step || names[i].again >= name.again)
			continue;
		checkpoint_name_print(text, names[i]);
		char *path = disk_join(dir, text);
		if (path)
			checkpoint_remove(path);
		free(path);
	}
}

static void unlock(struct checkpoint_dir *made)
{
	char *path;

	if (asprintf(&path, "%s/%s.lock", made->dir, made->temporary) >= 0) {
		unlink(path);
		free(path);
	}
	close(made->lock);
	made->temporary[0] = '\0';
}

static tutti_status commit_folder(struct checkpoint_dir *made, const char *path)
{
	struct checkpoint_name *names, name = {.step = made->step};
	size_t count;

	TRY(checkpoint_names(&names, &count, made->dir));
	for (size_t i = count; i > 0; i--)
		if (names[i - 1].step == name.step)
			name.again = names[i - 1].again + 1;
	tutti_status status = give_name(&name, made->dir, path);
	if (status == TUTTI_OK) {
		unlock(made);
		status = disk_sync_folder(made->dir);
	}
	if (status == TUTTI_OK)
		remove_older(made->dir, name, names, count);
	free(names);
	return status;
}

tutti_status checkpoint_dir_commit(struct checkpoint_dir *made, const char *const *texts,
				   const size_t *bytes, int ranks)
{
	struct checkpoint_index all = {0};
	tutti_status status = add_up(&all, made, texts, bytes, ranks);
	char *path = NULL;

	if (status == TUTTI_OK && !(path = disk_join(made->dir, made->temporary)))
		status = TUTTI_ERR_MEMORY;
	if (status == TUTTI_OK)
		status = write_index(path, &all);
	if (status == TUTTI_OK)
		status = commit_folder(made, path);
	free(path);
	checkpoint_index_finish(&all);
	return status;
}

void checkpoint_dir_finish(struct checkpoint_dir *made)
{
	if (made->temporary[0]) {
		char *path = disk_join(made->dir, made->temporary);
		if (path)
			checkpoint_remove(path);
		free(path);
		unlock(made);
	}
	free(made->dir);
	memset(made, 0, sizeof *made);
}
