/* The folder of checkpoints: makes that of a checkpoint, and gives it its final name; removes what
 * earlier jobs have left; and finds the newest whole one. */
#include "train/checkpoint/checkpoint_dir.h"

#include "train/checkpoint/safetensors.h"

#include <dirent.h>
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

/* ---- leftovers ---- */

/* Removes what jobs that died in a save have left. The name identifies it, and the lock shows that
 * no process writes there. */

static const char lock_suffix[] = ".lock";

/* The name of a temporary folder: .step_00000200.tmp-0123456789abcdef. */
static void checkpoint_temporary_print(char text[CHECKPOINT_NAME_BYTES], int64_t step,
				       uint64_t token)
{
	snprintf(text, CHECKPOINT_NAME_BYTES, ".step_%08" PRId64 ".tmp-%016" PRIx64, step, token);
}

/* Exactly such a name: other files are the user's. */
static bool checkpoint_dir_is_temporary(const char *name)
{
	char again[CHECKPOINT_NAME_BYTES];
	int64_t step;
	uint64_t token;

	if (sscanf(name, ".step_%19" SCNd64 ".tmp-%16" SCNx64, &step, &token) != 2 || step < 0)
		return false;
	checkpoint_temporary_print(again, step, token);
	return strcmp(again, name) == 0;
}

/* Exactly the names that a save writes into a folder. */
static bool checkpoint_sweep_is_ours(const char *name)
{
	char again[CHECKPOINT_FILE_BYTES];
	int rank, world_size;

	if (strcmp(name, "index.json") == 0 || strcmp(name, "COMMIT") == 0)
		return true;
	if (sscanf(name, "part-%9d-of-%9d.", &rank, &world_size) != 2)
		return false;
	checkpoint_file_name(again, rank, world_size);
	return strcmp(again, name) == 0;
}

static void checkpoint_dir_remove_link(const char *path)
{
	struct stat about;

	if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode))
		unlink(path);
}

void checkpoint_remove(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;

	if (!folder && fd >= 0)
		close(fd);
	if (!folder) {
		checkpoint_dir_remove_link(path);
		return;
	}
	for (struct dirent *entry; (entry = readdir(folder));)
		if (checkpoint_sweep_is_ours(entry->d_name))
			unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
	rmdir(path);
}

/* The process that locks the file owns the folder. The file is made and locked before the folder,
 * and removed after it, so without the file no save is alive. If files cannot be locked nothing is
 * removed. */
static void checkpoint_dir_remove_if_dead(const char *dir, const char *temporary)
{
	char path[DISK_PATH_BYTES], lock_path[DISK_PATH_BYTES];

	if (disk_path(path, "%s/%s", dir, temporary) != TUTTI_OK ||
	    disk_path(lock_path, "%s%s", path, lock_suffix) != TUTTI_OK)
		return;
	int lock = open(lock_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool is_dead = lock < 0 ? errno == ENOENT : flock(lock, LOCK_EX | LOCK_NB) == 0;
	if (is_dead) {
		checkpoint_remove(path);
		unlink(lock_path);
	}
	if (lock >= 0)
		close(lock);
}

void checkpoint_sweep(const char *dir)
{
	DIR *folder = opendir(dir);

	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		size_t n = strlen(entry->d_name), s = sizeof lock_suffix - 1;
		if (n > s && strcmp(entry->d_name + n - s, lock_suffix) == 0)
			entry->d_name[n - s] = '\0';
		if (checkpoint_dir_is_temporary(entry->d_name))
			checkpoint_dir_remove_if_dead(dir, entry->d_name);
	}
	if (folder)
		closedir(folder);
}

/* ---- names ---- */

/* The names of checkpoints below a folder, and the text of a checkpoint's COMMIT file. */

void checkpoint_name_print(char text[CHECKPOINT_NAME_BYTES], struct checkpoint_name name)
{
	int n = snprintf(text, CHECKPOINT_NAME_BYTES, "step_%08" PRId64, name.step);

	if (name.again)
		snprintf(text + n, (size_t)(CHECKPOINT_NAME_BYTES - n), ".%u", name.again);
}

static bool checkpoint_name_parse(struct checkpoint_name *name, const char *text)
{
	struct checkpoint_name read = {0};
	char again[CHECKPOINT_NAME_BYTES];

	/* Exactly the names that a save writes: 'step_00000200.bak' is none. */
	if (sscanf(text, "step_%19" SCNd64 ".%9u", &read.step, &read.again) < 1 || read.step < 0)
		return false;
	checkpoint_name_print(again, read);
	if (strcmp(again, text) != 0)
		return false;
	*name = read;
	return true;
}

static int checkpoint_dir_compare_newest_first(const void *a, const void *b)
{
	const struct checkpoint_name *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? 1 : -1;
	return (x->again < y->again) - (x->again > y->again);
}

/* Lists the names of the open folder. The caller frees *names also after an error. */
static tutti_status checkpoint_names_list(struct checkpoint_name **names, size_t *count,
					  DIR *folder, const char *dir)
{
	struct checkpoint_name name;

	for (;;) {
		errno = 0;
		struct dirent *entry = readdir(folder);
		if (!entry)
			return errno ? disk_fail("Listing", dir) : TUTTI_OK;
		if (!checkpoint_name_parse(&name, entry->d_name))
			continue;
		TRY(array_grow(names, *count, sizeof name, "a list of checkpoints"));
		(*names)[(*count)++] = name;
	}
}

tutti_status checkpoint_names(struct checkpoint_name **names, size_t *count, const char *dir)
{
	struct checkpoint_name *listed = NULL;
	size_t n = 0;
	DIR *folder = opendir(dir);

	if (!folder)
		return disk_fail("Opening", dir);
	tutti_status status = checkpoint_names_list(&listed, &n, folder, dir);
	closedir(folder);
	if (status != TUTTI_OK) {
		free(listed);
		return status;
	}
	if (n > 1)
		qsort(listed, n, sizeof *listed, checkpoint_dir_compare_newest_first);
	*names = listed;
	*count = n;
	return TUTTI_OK;
}

void checkpoint_commit_text(char text[128], const char *index, size_t bytes)
{
	snprintf(text, 128, "tutti checkpoint 1\nindex.json has %zu bytes, CRC-32C %08" PRIx32 "\n",
		 bytes, tutti_crc32c(0, index, bytes));
}

enum { TRIES = 10 };

/* ---- a new checkpoint ---- */

/* *is_mine: the file is locked and no other process has removed it. A file system without locks is
 * used without. */
static tutti_status checkpoint_dir_make_lock(int *lock, bool *is_mine, const char *path)
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

/* Tries one new name. *is_mine as in checkpoint_dir_make_lock. */
static tutti_status checkpoint_dir_make_temporary(struct checkpoint_dir *made, bool *is_mine)
{
	char name[CHECKPOINT_NAME_BYTES], lock_path[DISK_PATH_BYTES];
	uint64_t token;

	if (getrandom(&token, sizeof token, 0) != sizeof token)
		return disk_fail("Asking for random bytes for", made->dir);
	checkpoint_temporary_print(name, made->step, token);
	TRY(disk_path(made->path, "%s/%s", made->dir, name));
	TRY(disk_path(lock_path, "%s.lock", made->path));
	TRY(checkpoint_dir_make_lock(&made->lock, is_mine, lock_path));
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
		TRY(checkpoint_dir_make_temporary(made, &is_mine));
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
static tutti_status checkpoint_dir_write_index(const char *path,
					       const struct checkpoint_index *index)
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
static void checkpoint_dir_remove_older(const char *dir, struct checkpoint_name name,
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

static tutti_status checkpoint_dir_commit_folder(struct checkpoint_dir *made)
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
		checkpoint_dir_remove_older(made->dir, name, names, count);
	free(names);
	return status;
}

tutti_status checkpoint_dir_commit(struct checkpoint_dir *made, const char *texts,
				   const size_t *bytes, int ranks)
{
	struct checkpoint_index all = {0};
	tutti_status status = checkpoint_dir_add_up(&all, made, texts, bytes, ranks);

	if (status == TUTTI_OK)
		status = checkpoint_dir_write_index(made->path, &all);
	checkpoint_index_finish(&all);
	TRY(status);
	return checkpoint_dir_commit_folder(made);
}

void checkpoint_dir_finish(struct checkpoint_dir *made)
{
	if (made->temporary[0]) {
		checkpoint_remove(made->path);
		checkpoint_dir_unlock(made);
	}
	memset(made, 0, sizeof *made);
}

/* ---- the newest whole checkpoint of a folder, or that which the folder is ---- */

enum { INDEX_LIMIT = 1 << 30, COMMIT_LIMIT = 128 };

/* Reads the index, which the caller frees also after an error, and compares it with COMMIT. */
static tutti_status checkpoint_dir_read_index(const char *path, char **index, size_t *bytes)
{
	char index_path[DISK_PATH_BYTES], commit_path[DISK_PATH_BYTES];
	char *commit, expected[COMMIT_LIMIT];
	size_t commit_bytes;

	TRY(disk_path(index_path, "%s/index.json", path));
	TRY(disk_path(commit_path, "%s/COMMIT", path));
	TRY(disk_read_all(index_path, INDEX_LIMIT, index, bytes));
	TRY(disk_read_all(commit_path, COMMIT_LIMIT, &commit, &commit_bytes));
	checkpoint_commit_text(expected, *index, *bytes);
	bool is_same =
		commit_bytes == strlen(expected) && memcmp(expected, commit, commit_bytes) == 0;
	free(commit);
	return is_same ? TUTTI_OK
		       : fail_invalid("'%s' does not match the COMMIT file beside it: one of them "
				      "is damaged.",
				      path_shown(index_path));
}

static tutti_status checkpoint_dir_check_file(const struct checkpoint_index *index,
					      const char *path, const struct checkpoint_file *file)
{
	char name[CHECKPOINT_FILE_BYTES], file_path[DISK_PATH_BYTES];
	struct stat about;

	checkpoint_file_name(name, file->rank, index->world_size);
	TRY(disk_path(file_path, "%s/%s", path, name));
	if (stat(file_path, &about) != 0)
		return disk_fail("Looking at", file_path);
	if (S_ISREG(about.st_mode) && (uint64_t)about.st_size == file->bytes)
		return TUTTI_OK;
	return fail_invalid("'%s' has %lld bytes instead of %" PRIu64
			    ": it was truncated or replaced.",
			    path_shown(file_path), (long long)about.st_size, file->bytes);
}

static tutti_status checkpoint_dir_check_whole(const struct checkpoint_index *index,
					       const char *path)
{
	TRY(checkpoint_index_check(index));
	for (size_t i = 0; i < index->file_count; i++)
		TRY(checkpoint_dir_check_file(index, path, &index->files[i]));
	return TUTTI_OK;
}

tutti_status checkpoint_dir_read(struct checkpoint_index *index, const char *path)
{
	struct checkpoint_index read = {0};
	char *text = NULL;
	size_t bytes;
	tutti_status status = checkpoint_dir_read_index(path, &text, &bytes);

	if (status == TUTTI_OK)
		status = checkpoint_index_parse(&read, path, text, bytes);
	free(text);
	TRY(status);
	status = checkpoint_dir_check_whole(&read, path);
	if (status == TUTTI_OK)
		*index = read;
	else
		checkpoint_index_finish(&read);
	return status;
}

/* A folder that was renamed, or has the index of another one, does not have the step of its name.
 */
static tutti_status checkpoint_dir_check_checkpoint(const char *path, int64_t step)
{
	struct checkpoint_index index;

	TRY(checkpoint_dir_read(&index, path));
	int64_t found = index.step;
	checkpoint_index_finish(&index);
	if (found == step)
		return TUTTI_OK;
	return fail_invalid("'%s/index.json' is of step %" PRId64
			    ", but its folder is named for step %" PRId64 ".",
			    path_shown(path), found, step);
}

/* Returns OK and sets found->path if the checkpoint is whole; otherwise notes what is wrong. */
static tutti_status checkpoint_dir_try_checkpoint(struct checkpoint_found *found, const char *dir,
						  struct checkpoint_name name)
{
	char text[CHECKPOINT_NAME_BYTES], path[DISK_PATH_BYTES];

	checkpoint_name_print(text, name);
	TRY(disk_path(path, "%s/%s", dir, text));
	tutti_status status = checkpoint_dir_check_checkpoint(path, name.step);
	if (status == TUTTI_OK) {
		strcpy(found->path, path);
		found->step = name.step;
		return TUTTI_OK;
	}
	/* This process cannot read the checkpoint, but it may be whole. */
	if (status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_UNSUPPORTED)
		return status;
	if (found->passed_over++ == 0)
		snprintf(found->message, sizeof found->message, "%s", tutti_comm_error(NULL));
	return TUTTI_OK;
}

/* Whether dir is not a folder of checkpoints but one, by its name and a file that it has. */
static bool checkpoint_dir_is_checkpoint(struct checkpoint_name *name, const char *dir)
{
	static const char *const files[] = {"index.json", "COMMIT"};
	char path[DISK_PATH_BYTES];
	size_t end = strlen(dir);

	while (end > 1 && dir[end - 1] == '/')
		end--;
	if (disk_path(path, "%.*s", (int)end, dir) != TUTTI_OK ||
	    !checkpoint_name_parse(name, strrchr(path, '/') ? strrchr(path, '/') + 1 : path))
		return false;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (disk_path(path, "%s/%s", dir, files[i]) == TUTTI_OK && access(path, F_OK) == 0)
			return true;
	return false;
}

static tutti_status checkpoint_dir_find_itself(struct checkpoint_found *found, const char *dir,
					       struct checkpoint_name name)
{
	TRY(checkpoint_dir_check_checkpoint(dir, name.step));
	found->is_dir = true;
	found->step = name.step;
	return disk_path(found->path, "%s", dir);
}

tutti_status checkpoint_dir_find(struct checkpoint_found *found, const char *dir)
{
	struct checkpoint_name *names = NULL;
	struct stat about;
	struct checkpoint_name name;
	size_t count = 0;

	*found = (struct checkpoint_found){.step = -1};
	if (checkpoint_dir_is_checkpoint(&name, dir))
		return checkpoint_dir_find_itself(found, dir, name);
	if (stat(dir, &about) != 0 && errno == ENOENT)
		return TUTTI_OK;
	TRY(checkpoint_names(&names, &count, dir));
	tutti_status status = TUTTI_OK;
	for (size_t i = 0; i < count && status == TUTTI_OK && !found->path[0]; i++)
		status = checkpoint_dir_try_checkpoint(found, dir, names[i]);
	free(names);
	TRY(status);
	if (!found->path[0] && found->passed_over)
		return fail_invalid("All %d checkpoints below '%s' are damaged. The newest: %s",
				    found->passed_over, path_shown(dir), found->message);
	return TUTTI_OK;
}
