/* tutti-top --web: the table as a page, for browsers of this machine. */
#ifndef TUTTI_TOP_WEB_H
#define TUTTI_TOP_WEB_H

#include "core/rank/fresh.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest request that is read. Browsers send some 700 bytes. */
#define WEB_REQUEST_BYTES 8192
/* Browsers open several connections, and some of them for later. */
#define WEB_CLIENTS 16
/* A client that has not sent its request, or not read its answer, is left by then. */
#define WEB_CLIENT_MS 10000
/* A connection that could not be accepted is tried again then. */
#define WEB_PAUSE_MS 100

/* The answer to a request. MORE: it is not whole yet. */
enum web_answer { WEB_MORE, WEB_PAGE, WEB_ROWS, WEB_MISSING, WEB_BAD };

struct web_client {
	int fd; /* -1: none */
	int64_t deadline_ns;
	size_t got, bytes, sent; /* of the request; of the answer, and of it what is sent */
	char *answer;            /* NULL: the request is not whole yet                      */
	char request[WEB_REQUEST_BYTES];
};

struct web {
	int listener, port;
	const char *host;        /* this machine's loopback address                           */
	char key[FRESH_SECRET_BYTES]; /* the first part of each path: other users do not know it */
	const char *rows;        /* the JSON document; the caller's                          */
	size_t rows_bytes;
	int64_t accept_at_ns; /* not before */
	struct web_client clients[WEB_CLIENTS];
};

/* request.c */
enum web_answer web_request(const char *text, size_t bytes, const char *key);

/* Listens on loopback; port 0: on a free one. False after a message on stderr. */
bool web_open(struct web *web, int port);
/* Answers requests until that moment of CLOCK_MONOTONIC. */
void web_serve(struct web *web, int64_t until_ns);
void web_close(struct web *web);

/* The page, made from top.html. */
extern const unsigned char web_page[];
extern const size_t web_page_bytes;

#endif
