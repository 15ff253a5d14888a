/* --version, the same for all installed programs: install.cmake links this into each of them, and it answers before
 * their main does. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void answer_version(int argc, char **argv)
{
	if (argc != 2 || strcmp(argv[1], "--version") != 0)
		return;
	printf("%s (Tutti) " TUTTI_VERSION "\n", program_invocation_short_name);
	_exit(fflush(stdout) == 0 ? 0 : 1);
}
