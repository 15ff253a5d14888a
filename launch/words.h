/* Words of the ranks on what tuttirun cannot see: core/join/tell_launcher.c sends them. */
#ifndef LAUNCH_WORDS_H
#define LAUNCH_WORDS_H

#include <sys/types.h>

struct words {
	int fd;        /* -1: they cannot tell anything                                      */
	char name[40]; /* of the socket                                                      */
};

struct words words_open(void);
/* The sender of a word. */
struct word_from {
	pid_t process;
	int rank;      /* by its environment, which a program may have changed; -1: it has none */
};

/* The next word, or 0. 'g': a rank calls tutti_comm_grow; 'w': one that was started again finds no
 * rank that does. 'j': a rank has joined the others. */
int words_next(const struct words *words, struct word_from *from);

#endif
