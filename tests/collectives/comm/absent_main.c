/* absent_main split|dup|create_from: ranks make a child, and rank 2 does not come. */
#include <tutti/tutti.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const int list[] = {3, 1, 2, 0};
	const char *call = argc > 1 ? argv[1] : "";
	tutti_comm *comm = NULL, *child = NULL;
	tutti_status status = tutti_init(&comm, NULL);

	if (status != TUTTI_OK || tutti_size(comm) != 4)
		return 1;
	while (tutti_rank(comm) == 2)
		pause();
	if (strcmp(call, "split") == 0)
		status = tutti_comm_split(comm, 0, 0, NULL, &child);
	else if (strcmp(call, "dup") == 0)
		status = tutti_comm_dup(comm, &child);
	else
		status = tutti_comm_create_from(comm, list, 4, 5, NULL, &child);
	fprintf(stderr, "absent_main: %s\n", tutti_status_string(status));
	return 1;
}
