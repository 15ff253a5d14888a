/* The tuttirun that another one has started on a machine: it is told on stdin what to run, then which
 * signals its ranks get. Where stdin ends, the ranks end: the other one, or the connection, has gone. */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#define AGENT_HEAD_BYTES 20          /* of a letter: a version, and how many bytes follow  */
#define AGENT_BYTES_MAX  (1 << 20)

/* The work of an agent; its texts lie in the letter. */
struct letter {
	const char *folder;
	char **variables;         /* NAME=value                                              */
	char **words;             /* tuttirun's own arguments, argv[0] included              */
	int variable_count, word_count;
	const char *input;        /* of rank 0, not a text                                   */
	size_t input_bytes;
};

struct hosts;
struct meeting;

/* Letters: written to the pipe that will be an agent's stdin, which has to take all. Returns 0, or -1
 * after a message on stderr. */
int letter_send(int fd, const struct hosts *hosts, const struct meeting *meeting, int host);
/* How many bytes follow a head; -1: it is none of this version. */
long letter_bytes(const char head[AGENT_HEAD_BYTES]);
/* Reads what follows a head. False: it is none. letter_free in both cases. */
int letter_read(struct letter *letter, char *bytes, size_t count);
void letter_free(struct letter *letter);

/* After the letter each byte is a signal for the ranks, or this: the job has failed elsewhere. */
#define AGENT_END 'E'

/* The rest of a letter, beside the command line. */
struct agent {
	int input_fd;             /* a file with the input of rank 0, or -1                  */
	bool is_again;            /* the ranks of all machines are started again             */
};

/* The variable that says so: 1 or 0. */
#define AGENT_AGAIN "TUTTIRUN_AGAIN"

/* In the agent: takes what the letter says for argc and argv, environment and folder. Returns 0, or the exit code
 * after a message on stderr. */
int agent_begin(int *argc, char ***argv, struct agent *agent);

#endif
