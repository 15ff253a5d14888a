/* /proc's word of the machine that this process sees, and of the processes on it. Reading it
 * takes some 10 us. */
#include "core/machine.h"

#include "core/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLAG_EXITING 0x4u /* the kernel's PF_EXITING */

bool machine_text(const char *path, char *text, size_t text_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, text_bytes - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

tutti_status machine_boot(char id[MACHINE_BOOT_BYTES])
{
	errno = 0;
	if (!machine_text("/proc/sys/kernel/random/boot_id", id, MACHINE_BOOT_BYTES)) {
		if (errno == EMFILE || errno == ENFILE)
			return fail_errno("cannot read which machine this is");
		id[0] = '\0';
	}
	id[strcspn(id, "\n")] = '\0';
	return TUTTI_OK;
}

uint64_t machine_namespace(const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int process_of(int pid_fd)
{
	char path[64], text[1024];
	const char *line;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pid_fd);
	if (pid_fd < 0 || !machine_text(path, text, sizeof text) ||
	    !(line = strstr(text, "\nPid:")))
		return 0;
	int pid = atoi(line + 5);
	return pid > 0 ? pid : 0;
}

/* The state and what follows it in a stat file; NULL: there is none. The name before it is the
 * program's own choice, and may have blanks and brackets in it. */
static const char *machine_read_stat(const char *path, char *text, size_t text_bytes)
{
	const char *at = machine_text(path, text, text_bytes) ? strrchr(text, ')') : NULL;
	return at && at[1] == ' ' ? at + 2 : NULL;
}

/* A thread that has begun to end runs no more code of its program: the kernel closes its files. */
static bool machine_has_thread_ended(int pid, const char *thread)
{
	char path[64], text[1024], state;
	unsigned flags = 0;

	snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", pid, thread);
	const char *at = machine_read_stat(path, text, sizeof text);
	if (!at)
		return true;
	return sscanf(at, "%c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
	       (state == 'Z' || state == 'X' || (flags & FLAG_EXITING));
}

bool process_has_ended(int pid)
{
	char path[64];
	const struct dirent *entry;
	bool has_ended = true;
	int threads = 0;

	if (pid <= 0)
		return false;
	if (kill(pid, 0) != 0 && errno == ESRCH)
		return true;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *dir = opendir(path);
	if (!dir)
		return false;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			has_ended &= machine_has_thread_ended(pid, entry->d_name);
			threads++;
		}
	closedir(dir);
	return has_ended && threads > 0;
}

#define FIELD_STATE       3
#define FIELD_START_CODE  26
#define FIELD_START_STACK 28 /* 0 where this process may not know it */

static uint64_t machine_stat_field(const char *at, int field)
{
	for (int i = FIELD_STATE; at && i < field; i++)
		if ((at = strchr(at, ' ')))
			at++;
	return at ? strtoull(at, NULL, 10) : 0;
}

struct process_look process_look(int pid)
{
	struct process_look look = {0};
	char path[64], text[1024];
	const char *at;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	at = pid > 0 ? machine_read_stat(path, text, sizeof text) : NULL;
	if (!at)
		return look;
	uint64_t stack = machine_stat_field(at, FIELD_START_STACK);
	look.is_stopped = *at == 'T' || *at == 't';
	look.program = stack ? stack ^ machine_stat_field(at, FIELD_START_CODE) << 16 : 0;
	return look;
}

bool process_is_stopped(int pid)
{
	return process_look(pid).is_stopped;
}
