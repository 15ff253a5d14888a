/* Reports: reports.h. */
#include "reports.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t address_of(int rank, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "tutti-api-%s-%ld-%d",
			 getenv("MASTER_PORT"), (long)getppid(), rank);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int reports_open(struct api *api)
{
	struct sockaddr_un address;
	struct timeval limit = {.tv_sec = API_WAIT_S};
	socklen_t length = address_of(api->rank, &address);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(api, fd >= 0, "socket");
	CHECK(api, bind(fd, (struct sockaddr *)&address, length) == 0, "bind");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	CHECK_OK(api, tutti_barrier(api->comm, NULL));
	if (api->rank > 0) {
		reports_send(api, fd, 0, TUTTI_OK);
		reports_any(api, fd, 1, TUTTI_OK);
		return fd;
	}
	reports_any(api, fd, api->size - 1, TUTTI_OK);
	for (int rank = 1; rank < api->size; rank++)
		reports_send(api, fd, rank, TUTTI_OK);
	return fd;
}

void reports_send(struct api *api, int fd, int to, tutti_status status)
{
	struct sockaddr_un address;
	socklen_t length = address_of(to, &address);

	CHECK(api, sendto(fd, &status, sizeof status, 0, (struct sockaddr *)&address, length) > 0,
	      "sendto");
}

bool reports_any(struct api *api, int fd, int n, tutti_status wanted)
{
	bool found = false;

	while (n-- > 0) {
		tutti_status status;
		CHECK(api, recv(fd, &status, sizeof status, 0) > 0, "a rank never reports");
		found |= status == wanted;
	}
	return found;
}
