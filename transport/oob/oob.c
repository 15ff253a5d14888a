/* The out-of-band connection: three messages of a tcp conn, and then notes. */
#include "transport/oob/oob.h"

#include "core/status.h"
#include "transport/registry.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tags of the tcp conn's messages. */
enum { TAG_BYTES = 1, TAG_HELLO, TAG_NOTE };

struct oob_endpoint {
	struct tutti_endpoint *tcp;
	struct oob_conn *news, **news_end;
};

tutti_status oob_open(struct oob_endpoint **out, const struct tutti_endpoint_config *config,
		      const char *fabric)
{
	struct tutti_endpoint_config own = *config;
	struct oob_endpoint *endpoint = calloc(1, sizeof *endpoint);

	if (!endpoint)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for its %s endpoint.",
			    config->rank, fabric);
	/* A proof for the communicator's own tcp endpoint is none for this one. */
	for (size_t i = 0; fabric[i]; i++)
		own.comm_id[1] = own.comm_id[1] * 31 + (uint8_t)fabric[i];
	/* A fabric does not get back what was on its way when it broke. */
	own.reconnect = own.checksum = 0;
	endpoint->news_end = &endpoint->news;
	tutti_status status = transport_tcp.open(&endpoint->tcp, &own);
	if (status != TUTTI_OK) {
		free(endpoint);
		return status;
	}
	*out = endpoint;
	return TUTTI_OK;
}

const struct tutti_endpoint *oob_tcp(const struct oob_endpoint *endpoint)
{
	assert(endpoint->tcp->address_bytes <= TUTTI_ADDRESS_BYTES - OOB_ROOM_BYTES);
	return endpoint->tcp;
}

bool oob_reaches(struct oob_endpoint *endpoint, int peer, const uint8_t *address, size_t bytes)
{
	return transport_tcp.reach(endpoint->tcp, peer, address, bytes) > 0;
}

void oob_destroy(struct oob_endpoint *endpoint)
{
	if (!endpoint)
		return;
	transport_tcp.destroy(endpoint->tcp);
	free(endpoint);
}

static void oob_post(struct oob_conn *conn, struct oob_io *io, void *buf, size_t bytes,
		     uint32_t tag, bool is_send)
{
	*io = (struct oob_io){.io = {.buf = buf, .bytes = bytes, .tag = tag}, .conn = conn};
	if (is_send)
		transport_tcp.send(conn->tcp, &io->io);
	else
		transport_tcp.recv(conn->tcp, &io->io);
}

tutti_status oob_connect(struct oob_conn *conn, struct oob_endpoint *endpoint, int peer,
			 int channel, const uint8_t *address, size_t address_bytes,
			 const void *hello, size_t hello_bytes)
{
	struct tutti_conn *tcp;

	assert(hello_bytes > 0 && hello_bytes <= OOB_HELLO_MOST);
	TRY(transport_tcp.connect(endpoint->tcp, peer, channel, address, address_bytes, &tcp));
	*conn = (struct oob_conn){.endpoint = endpoint, .tcp = tcp};
	conn->own_hello = malloc(hello_bytes);
	if (!conn->own_hello) {
		oob_close(conn);
		return fail(TUTTI_ERR_MEMORY, "No memory to connect to rank %d.", peer);
	}
	memcpy(conn->own_hello, hello, hello_bytes);
	conn->own_bytes = (uint32_t)hello_bytes;
	oob_post(conn, &conn->out_bytes, &conn->own_bytes, sizeof conn->own_bytes, TAG_BYTES, true);
	oob_post(conn, &conn->out_hello, conn->own_hello, hello_bytes, TAG_HELLO, true);
	oob_post(conn, &conn->in_bytes, &conn->hello_bytes, sizeof conn->hello_bytes, TAG_BYTES,
		 false);
	return TUTTI_OK;
}

bool oob_is_up(const struct oob_conn *conn)
{
	return conn->tcp && !conn->has_ended && conn->tcp->where[0];
}

void oob_send_note(struct oob_conn *conn, const struct oob_note *note)
{
	assert(conn->has_greeted && conn->noted < OOB_NOTES);
	if (conn->has_ended)
		return;
	conn->own_notes[conn->noted] = *note;
	oob_post(conn, &conn->out_notes[conn->noted], &conn->own_notes[conn->noted], sizeof *note,
		 TAG_NOTE, true);
	conn->noted++;
}

static void oob_await_note(struct oob_conn *conn)
{
	oob_post(conn, &conn->in_note, &conn->note, sizeof conn->note, TAG_NOTE, false);
}

void oob_note_taken(struct oob_conn *conn)
{
	assert(conn->has_note);
	conn->has_note = false;
	if (!conn->has_ended)
		oob_await_note(conn);
}

static void oob_has_news(struct oob_conn *conn)
{
	struct oob_endpoint *endpoint = conn->endpoint;

	if (conn->has_news)
		return;
	conn->has_news = true;
	conn->next_news = NULL;
	*endpoint->news_end = conn;
	endpoint->news_end = &conn->next_news;
}

struct oob_conn *oob_next_news(struct oob_endpoint *endpoint)
{
	struct oob_conn *conn = endpoint->news;

	if (!conn)
		return NULL;
	endpoint->news = conn->next_news;
	if (!endpoint->news)
		endpoint->news_end = &endpoint->news;
	conn->has_news = false;
	return conn;
}

static void oob_forget_news(struct oob_conn *conn)
{
	struct oob_conn **at = &conn->endpoint->news;

	while (*at && *at != conn)
		at = &(*at)->next_news;
	if (!*at)
		return;
	*at = conn->next_news;
	if (!*at)
		conn->endpoint->news_end = at;
}

void oob_close(struct oob_conn *conn)
{
	if (!conn->tcp)
		return;
	oob_forget_news(conn);
	transport_tcp.close(conn->tcp);
	free(conn->own_hello);
	free(conn->hello);
	conn->tcp = NULL;
	conn->own_hello = conn->hello = NULL;
	conn->error = "";
}

static void oob_end(struct oob_conn *conn, tutti_status status, const char *error)
{
	if (conn->has_ended)
		return;
	conn->has_ended = true;
	conn->status = status;
	conn->error = error;
	oob_has_news(conn);
}

static void oob_end_greeting(struct oob_conn *conn, tutti_status status, const char *why)
{
	snprintf(conn->own_error, sizeof conn->own_error, "rank %d is not greeted: %s",
		 conn->tcp->peer, why);
	oob_end(conn, status, conn->own_error);
}

/* The peer is a rank of the job; what it says is checked all the same. */
static void oob_take_bytes(struct oob_conn *conn)
{
	if (conn->hello_bytes == 0 || conn->hello_bytes > OOB_HELLO_MOST) {
		oob_end_greeting(conn, TUTTI_ERR_MISMATCH,
				 "its hello has another form; all ranks need the same Tutti");
		return;
	}
	conn->hello = malloc(conn->hello_bytes);
	if (!conn->hello)
		oob_end_greeting(conn, TUTTI_ERR_MEMORY, "no memory for its hello");
	else
		oob_post(conn, &conn->in_hello, conn->hello, conn->hello_bytes, TAG_HELLO, false);
}

static void oob_take(struct oob_conn *conn, const struct oob_io *io)
{
	if (io->io.status != TUTTI_OK) {
		oob_end(conn, io->io.status, conn->tcp->error);
	} else if (io == &conn->in_bytes) {
		oob_take_bytes(conn);
	} else if (io == &conn->in_hello) {
		conn->has_greeted = true;
		oob_await_note(conn);
		oob_has_news(conn);
	} else if (io == &conn->in_note) {
		conn->has_note = true;
		conn->note.text[sizeof conn->note.text - 1] = '\0';
		oob_has_news(conn);
	}
}

bool oob_progress(struct oob_endpoint *endpoint)
{
	struct tutti_done done;
	int is_moving;

	tutti_done_init(&done);
	is_moving = transport_tcp.progress(endpoint->tcp, &done);
	for (struct tutti_io *io; (io = tutti_done_pop(&done));)
		oob_take(((struct oob_io *)io)->conn, (struct oob_io *)io);
	return is_moving;
}

int oob_event_fd(struct oob_endpoint *endpoint)
{
	return transport_tcp.event_fd(endpoint->tcp);
}

int oob_arm(struct oob_endpoint *endpoint)
{
	return endpoint->news != NULL || transport_tcp.arm(endpoint->tcp);
}
