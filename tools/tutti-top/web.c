/* A server of HTTP for the page of tutti-top: one thread, loopback alone, a request for each
 * connection. It answers GET of the page and of the rows, and nothing else. */
#include "web.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/words/netaddr.h"
#include "tools/must.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 16

static bool web_complain(struct web *web, const char *what, int port)
{
	int error = errno;

	fprintf(stderr, "tutti-top: port %d of %s %s: %s%s.\n", port, web->host, what,
		strerror(error), port ? "; --web alone takes a free one" : "");
	web_close(web);
	return false;
}

bool web_open(struct web *web, int port)
{
	*web = (struct web){.listener = -1, .host = netaddr_loopback(), .rows = ""};
	for (int i = 0; i < WEB_CLIENTS; i++)
		web->clients[i].fd = -1;
	if (fresh_secret(web->key) != 0)
		return web_complain(web, "cannot be used", port);
	if (net_listen(web->host, port, BACKLOG, &web->listener, &web->port) != TUTTI_OK)
		return web_complain(web, "cannot be listened on", port);
	return true;
}

static void web_leave(struct web_client *client)
{
	close(client->fd);
	free(client->answer);
	client->answer = NULL;
	client->fd = -1;
}

void web_close(struct web *web)
{
	for (int i = 0; i < WEB_CLIENTS; i++)
		if (web->clients[i].fd >= 0)
			web_leave(&web->clients[i]);
	if (web->listener >= 0)
		close(web->listener);
	web->listener = -1;
}

/* The page may run what it has in itself and ask this server, and no other. */
static void web_make_answer(struct web_client *client, const char *status, const char *type,
			    const void *body, size_t bytes)
{
	FILE *file = must_have(open_memstream(&client->answer, &client->bytes));

	fprintf(file,
		"HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n"
		"Connection: close\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
		"X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
		"Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
		"style-src 'unsafe-inline'; img-src data:; connect-src 'self'\r\n\r\n",
		status, type, bytes);
	fwrite(body, 1, bytes, file);
	if (fclose(file) != 0)
		must_have(NULL);
	client->sent = 0;
}

static void web_make_error(struct web_client *client, const char *status)
{
	web_make_answer(client, status, "text/plain", status, strlen(status));
}

static void tutti_top_web_answer(const struct web *web, struct web_client *client)
{
	switch (web_request(client->request, client->got, web->key)) {
	case WEB_MORE:
		return;
	case WEB_PAGE:
		web_make_answer(client, "200 OK", "text/html", web_page, web_page_bytes);
		return;
	case WEB_ROWS:
		web_make_answer(client, "200 OK", "application/json", web->rows, web->rows_bytes);
		return;
	case WEB_MISSING:
		web_make_error(client, "404 Not Found");
		return;
	case WEB_BAD:
		web_make_error(client, "400 Bad Request");
		return;
	}
}

/* False: the connection is over. */
static bool web_receive(const struct web *web, struct web_client *client)
{
	ssize_t n = recv(client->fd, client->request + client->got,
			 sizeof client->request - client->got, 0);

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	client->got += (size_t)n;
	tutti_top_web_answer(web, client);
	return true;
}

static bool web_transmit(struct web_client *client)
{
	ssize_t n = send(client->fd, client->answer + client->sent, client->bytes - client->sent,
			 MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	client->sent += (size_t)n;
	return client->sent < client->bytes;
}

/* A place that is free, or that of the oldest connection: most likely nobody uses that any more. */
static struct web_client *web_make_room(struct web *web)
{
	struct web_client *oldest = &web->clients[0];

	for (int i = 0; i < WEB_CLIENTS; i++) {
		if (web->clients[i].fd < 0)
			return &web->clients[i];
		if (web->clients[i].deadline_ns < oldest->deadline_ns)
			oldest = &web->clients[i];
	}
	web_leave(oldest);
	return oldest;
}

/* A connection without a descriptor stays in the queue, where poll would find it again at once. */
static void web_accept_one(struct web *web)
{
	struct web_client *client = web_make_room(web);
	int64_t now_ns = (int64_t)clock_now_ns();

	client->fd = accept4(web->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (client->fd < 0)
		web->accept_at_ns = now_ns + WEB_PAUSE_MS * INT64_C(1000000);
	client->got = 0;
	client->deadline_ns = now_ns + WEB_CLIENT_MS * INT64_C(1000000);
}

static void web_step(const struct web *web, struct web_client *client, short events, int64_t now_ns)
{
	bool goes_on = now_ns < client->deadline_ns;

	if (goes_on && events)
		goes_on = client->answer ? web_transmit(client) : web_receive(web, client);
	if (!goes_on)
		web_leave(client);
}

/* When there is something to do even if no client does anything. */
static int64_t web_next_deadline(const struct web *web, int64_t now_ns, int64_t until_ns)
{
	if (web->accept_at_ns > now_ns && web->accept_at_ns < until_ns)
		until_ns = web->accept_at_ns;
	for (int i = 0; i < WEB_CLIENTS; i++)
		if (web->clients[i].fd >= 0 && web->clients[i].deadline_ns < until_ns)
			until_ns = web->clients[i].deadline_ns;
	return until_ns;
}

void web_serve(struct web *web, int64_t until_ns)
{
	int64_t now_ns;

	while ((now_ns = (int64_t)clock_now_ns()) < until_ns) {
		bool accepts = now_ns >= web->accept_at_ns;
		struct pollfd fds[1 + WEB_CLIENTS] = {
			{.fd = accepts ? web->listener : -1, .events = POLLIN}};
		for (int i = 0; i < WEB_CLIENTS; i++)
			fds[1 + i] = (struct pollfd){.fd = web->clients[i].fd,
						     .events = web->clients[i].answer ? POLLOUT
										      : POLLIN};
		int64_t left_ns = web_next_deadline(web, now_ns, until_ns) - now_ns;
		poll(fds, 1 + WEB_CLIENTS, left_ns > 0 ? (int)(left_ns / 1000000 + 1) : 0);
		now_ns = (int64_t)clock_now_ns();
		for (int i = 0; i < WEB_CLIENTS; i++)
			if (web->clients[i].fd >= 0)
				web_step(web, &web->clients[i], fds[1 + i].revents, now_ns);
		if (fds[0].revents)
			web_accept_one(web);
	}
}
