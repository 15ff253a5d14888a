/* The mailboxes of a connection of shm, for messages that cannot wait for endpoints and ios. They
 * follow the connection's rules: the thread that uses them is the one that may make progress; what
 * the peer has sent before it ended can be read; a mailbox that is damaged fails the connection. */
#ifndef TRANSPORT_SHM_MAIL_H
#define TRANSPORT_SHM_MAIL_H

#include "transport/shm/mailbox.h"

#include <tutti/transport.h>

/* To the peer, which is woken if it sleeps. False: conn is another transport's or not
 * open, or there is no room. */
bool shm_mail_send(struct tutti_conn *conn, const struct mail *mail, const void *data);
/* What the peer has sent, also when conn has failed since; NULL: conn is another transport's, or
 * has never been up. Until close. */
struct mailbox_reader *shm_mail_reader(struct tutti_conn *conn);
/* io is done (once) when there is something in the box that no one has taken yet, or when conn has
 * failed. False: conn is another transport's. */
bool shm_mail_await(struct tutti_conn *conn, struct tutti_io *io);

#endif
