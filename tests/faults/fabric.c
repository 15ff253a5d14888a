/* See fabric.h. */
#include "tests/faults/fabric.h"

#include "core/env.h"
#include "core/status.h"
#include "transport/registry.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *reason(const char *transport)
{
	const struct tutti_endpoint_config config = {.size = 2, .host_id = "", .is_named = 1};
	const struct tutti_transport *list[TRANSPORTS_MAX];
	struct tutti_endpoint *endpoint;
	int count;

	if (transport_list(list, &count, transport, NULL) == TUTTI_OK &&
	    list[0]->open(&endpoint, &config) == TUTTI_OK && endpoint->address_bytes > 0)
		return "";
	return last_error();
}

static void ask(const char *transport, char *why, size_t bytes)
{
	int ends[2];
	ssize_t got = -1;

	snprintf(why, bytes, "no process can be asked whether %s works here", transport);
	fflush(NULL);
	if (pipe(ends) != 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		const char *text = reason(transport);
		_exit(write(ends[1], text, strlen(text) + 1) < 0);
	}
	close(ends[1]);
	if (pid > 0) {
		got = read(ends[0], why, bytes - 1);
		waitpid(pid, NULL, 0);
	}
	if (got > 0)
		why[got] = '\0';
	close(ends[0]);
}

const char *fabric_lacks(const char *transport)
{
	static char asked[32], why[400];

	if (strcmp(asked, transport) != 0) {
		snprintf(asked, sizeof asked, "%s", transport);
		ask(transport, why, sizeof why);
	}
	return why[0] ? why : NULL;
}
