/* trace_page_main KIND: a process that has something else under the name of a trace: random, short,
 * unsealed, version; or, hidden, a process of which no descriptor may be seen. Says that it is
 * ready, and lives until stdin ends. */
#include "collectives/trace/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	size_t bytes = strcmp(kind, "short") == 0 ? 100 : 8192, n = 0;
	uint8_t *content = malloc(bytes);
	int fd = memfd_create(TRACE_NAME, MFD_ALLOW_SEALING);

	srand(1);
	for (size_t i = 0; i < bytes; i++)
		content[i] = (uint8_t)rand();
	if (strcmp(kind, "version") == 0) {
		struct trace_page page = {.magic = TRACE_MAGIC,
					  .version = TRACE_VERSION + 1,
					  .library = "0.9.9",
					  .pid = (int32_t)getpid()};
		memcpy(content, &page, sizeof page);
	}
	while (n < bytes)
		n += (size_t)write(fd, content + n, bytes - n);
	if (strcmp(kind, "unsealed") != 0)
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (strcmp(kind, "hidden") == 0)
		prctl(PR_SET_DUMPABLE, 0);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	free(content);
	close(fd);
	return 0;
}
