/* Removes what jobs that died in a save have left. The name identifies it, and the lock shows that
 * no process writes there. */
#include "train/checkpoint/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".lock";

void checkpoint_temporary_print(char text[CHECKPOINT_NAME_BYTES], int64_t step, uint64_t token)
{
	snprintf(text, CHECKPOINT_NAME_BYTES, ".step_%08" PRId64 ".tmp-%016" PRIx64, step, token);
}

/* Exactly such a name: other files are the user's. */
static bool is_temporary(const char *name)
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

static void remove_link(const char *path)
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
		remove_link(path);
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
static void remove_if_dead(const char *dir, const char *temporary)
{
	char path[DISK_PATH_BYTES], lock_path[DISK_PATH_BYTES];

	if (disk_path(path, "%s/%s", dir, temporary) != TUTTI_OK ||
	    disk_path(lock_path, "%s%s", path, suffix) != TUTTI_OK)
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
		size_t n = strlen(entry->d_name), s = sizeof suffix - 1;
		if (n > s && strcmp(entry->d_name + n - s, suffix) == 0)
			entry->d_name[n - s] = '\0';
		if (is_temporary(entry->d_name))
			remove_if_dead(dir, entry->d_name);
	}
	if (folder)
		closedir(folder);
}
