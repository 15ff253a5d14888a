/* How a rank has ended, in numbers and in words, and how long ranks have to end. */
#ifndef CORE_RANK_ENDING_H
#define CORE_RANK_ENDING_H

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LAST_WORDS_MS   500   /* from a failure to SIGTERM: the others say why they fail, too  */
#define FAILED_GRACE_MS 2000  /* from SIGTERM to SIGKILL after a failure                       */
#define ASKED_GRACE_MS  30000 /* after a signal from outside: time for a checkpoint            */
#define OUTPUT_LOST     3     /* exit code when all went well, but output could not be written */

struct rank_ending {
	int code, signal; /* both 0: it has ended well */
};

#define ENDING_BYTES 400

/* As a shell has it: 128 + signal. */
int ending_code(const struct rank_ending *ending);
/* Writes "rank 2 (pid 12) was killed by signal 9 (Killed)", where "rank 2 (pid 12)" is name. */
void ending_words(char text[ENDING_BYTES], const char *name, const struct rank_ending *ending);

/* In a process that was just forked: should its parent be killed, it is killed, too; it may have
 * been already. */
static inline void follow_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

#endif
