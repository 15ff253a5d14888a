/* oob: the out-of-band connection beside each conn of a fabric (verbs, ucx). It is a conn of the
 * tcp transport, so that all that holds there holds for the fabric too: both ends have proved the
 * job's secret before they believe each other, either may connect first, and the end of a process
 * is seen at once, which a fabric tells late or never.
 *
 * Over it the two ends exchange a hello (what the fabric needs to connect them), and notes. No byte
 * of the caller's messages goes this way. The threads of the fabric's endpoint call it; nothing
 * blocks but oob_open and oob_destroy. */
#ifndef TRANSPORT_OOB_OOB_H
#define TRANSPORT_OOB_OOB_H

#include <tutti/transport.h>

#include <stdbool.h>

#define OOB_HELLO_MOST 16384 /* bytes of a hello */
#define OOB_NOTES      8     /* that one end may send on a conn in its life */
#define OOB_TEXT_BYTES 240
#define OOB_ROOM_BYTES 32

struct oob_endpoint;

/* kind: the fabric's. status and text: of a conn that has failed. */
struct oob_note {
	uint32_t kind;
	int32_t status;
	uint64_t number;
	char text[OOB_TEXT_BYTES];
};

struct oob_io {
	struct tutti_io io;
	struct oob_conn *conn;
};

/* Embedded in the fabric's conn; oob_connect fills it in. */
struct oob_conn {
	struct oob_endpoint *endpoint;
	struct tutti_conn *tcp;      /* NULL once it is closed                                  */
	struct oob_conn *next_news;
	bool has_news;               /* on the endpoint's list                                  */
	bool has_greeted;            /* the peer's hello is here                                */
	bool has_ended;              /* status and error say why; nothing more comes            */
	tutti_status status;
	const char *error;           /* until oob_close                                         */
	char own_error[100];         /* what error is, where it is not the tcp conn's           */
	uint8_t *hello;              /* the peer's, of hello_bytes; until oob_close             */
	uint32_t hello_bytes;
	struct oob_note note;        /* the last that came, while has_note                      */
	bool has_note;

	uint8_t *own_hello;
	uint32_t own_bytes;
	struct oob_io out_bytes, out_hello, in_bytes, in_hello, in_note, out_notes[OOB_NOTES];
	struct oob_note own_notes[OOB_NOTES];
	int noted;                   /* notes sent so far                                       */
};

/* fabric: its name. Errors: as tcp's open. */
tutti_status oob_open(struct oob_endpoint **endpoint, const struct tutti_endpoint_config *config,
		      const char *fabric);
/* The address that peers connect to. It leaves OOB_ROOM_BYTES for what the fabric adds. */
const struct tutti_endpoint *oob_tcp(const struct oob_endpoint *endpoint);
/* Whether that part of a peer's address is one, and can be reached. */
bool oob_reaches(struct oob_endpoint *endpoint, int peer, const uint8_t *address, size_t bytes);
void oob_destroy(struct oob_endpoint *endpoint); /* after its conns; NULL is fine */

/* As connect of tutti_transport. hello is copied. Errors: as tcp's connect, MEMORY. */
tutti_status oob_connect(struct oob_conn *conn, struct oob_endpoint *endpoint, int peer,
			 int channel, const uint8_t *address, size_t address_bytes,
			 const void *hello, size_t hello_bytes);
/* Whether the two have reached each other: the peer may have this end's hello. */
bool oob_is_up(const struct oob_conn *conn);
/* After the greeting, and at most OOB_NOTES times. Notes arrive in order. */
void oob_send_note(struct oob_conn *conn, const struct oob_note *note);
/* The caller has read conn->note: the next one may come. */
void oob_note_taken(struct oob_conn *conn);
/* The peer sees the end, after all notes that tcp has taken. */
void oob_close(struct oob_conn *conn);

/* Moves what can be moved. Returns whether anything happened. */
bool oob_progress(struct oob_endpoint *endpoint);
/* The next conn of which there is news: has_greeted, has_note or has_ended. NULL: no more. */
struct oob_conn *oob_next_news(struct oob_endpoint *endpoint);

/* As the functions of tutti_transport. */
int oob_event_fd(struct oob_endpoint *endpoint);
int oob_arm(struct oob_endpoint *endpoint);

#endif
