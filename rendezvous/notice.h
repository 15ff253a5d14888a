/* The file of a file:// rendezvous: rank 0's tutti:// URL, one line. It appears whole or not at
 * all.
 *
 * A stale one of an earlier job breaks nothing: the secret in it is proved only by the process
 * that wrote it, so readers find no server there, and read again until rank 0 has put its own in
 * place. */
#ifndef RENDEZVOUS_NOTICE_H
#define RENDEZVOUS_NOTICE_H

#include "rendezvous/place.h"

tutti_status notice_publish(const char *path, const char *url);
/* IN_PROGRESS when there is none. need_owner: no file of another user's is believed. */
tutti_status notice_read(const char *path, bool need_owner, char url[URL_BYTES]);
/* If it is still this one. */
void notice_remove(const char *path, const char *url);

#endif
