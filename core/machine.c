/* What /proc says of the machine that this process sees. */
#include "core/machine.h"

#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
