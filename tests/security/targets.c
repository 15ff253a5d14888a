/* Descriptors in /proc/PID/fd name sockets by inode; the tables in /proc/net say which of those
 * listen. */
#include "tests/security/targets.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INODES_MOST 4096

struct inodes {
	unsigned long list[INODES_MOST];
	int n;
};

static void add_inodes(struct inodes *inodes, pid_t pid)
{
	char path[64], link[64], full[400];
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return; /* it has ended */
	for (struct dirent *e; (e = readdir(dir)) && inodes->n < INODES_MOST;) {
		unsigned long inode;
		ssize_t bytes;
		snprintf(full, sizeof full, "%s/%s", path, e->d_name);
		bytes = readlink(full, link, sizeof link - 1);
		if (bytes <= 0)
			continue;
		link[bytes] = '\0';
		if (sscanf(link, "socket:[%lu]", &inode) == 1)
			inodes->list[inodes->n++] = inode;
	}
	closedir(dir);
}

static bool is_ours(const struct inodes *inodes, unsigned long inode)
{
	for (int i = 0; i < inodes->n; i++)
		if (inodes->list[i] == inode)
			return true;
	return false;
}

static int read_tcp(const char *path, const struct inodes *inodes, struct target *to, int room)
{
	FILE *file = fopen(path, "re");
	char line[512];
	int n = 0;

	while (file && n < room && fgets(line, sizeof line, file)) {
		unsigned port, state;
		unsigned long inode;
		if (sscanf(line, " %*[^:]: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %lu", &port,
			   &state, &inode) != 3)
			continue;
		if (state !=
		    10) /* the kernel has those that listen first, and may have thousands */
			break;
		if (is_ours(inodes, inode))
			to[n++] = (struct target){.port = (int)port};
	}
	if (file)
		fclose(file);
	return n;
}

static int read_unix(const struct inodes *inodes, struct target *to, int room)
{
	FILE *file = fopen("/proc/net/unix", "re");
	char line[512];
	int n = 0;

	while (file && n < room && fgets(line, sizeof line, file)) {
		unsigned flags;
		unsigned long inode;
		char name[108] = "";
		if (sscanf(line, "%*s %*s %*s %x %*s %*s %lu @%107s", &flags, &inode, name) != 3)
			continue;
		if ((flags & 0x10000) == 0 || !is_ours(inodes, inode))
			continue;
		to[n] = (struct target){.is_unix = true};
		memcpy(to[n++].name, name, sizeof name);
	}
	if (file)
		fclose(file);
	return n;
}

int targets_find(const pid_t *pids, int n, struct target targets[TARGETS_MOST])
{
	static struct inodes inodes;
	int count = 0;

	inodes.n = 0;
	for (int i = 0; i < n; i++)
		add_inodes(&inodes, pids[i]);
	count += read_tcp("/proc/net/tcp", &inodes, targets, TARGETS_MOST);
	count += read_tcp("/proc/net/tcp6", &inodes, targets + count, TARGETS_MOST - count);
	return count + read_unix(&inodes, targets + count, TARGETS_MOST - count);
}
