/* The beginning of an agent. */
#include "agent.h"

#include "file_input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Not a byte more: what follows is for later. */
static int agent_read_whole(char *bytes, size_t count)
{
	size_t done = 0;

	while (done < count) {
		ssize_t n = read(STDIN_FILENO, bytes + done, count - done);

		if (n == 0 || (n < 0 && errno != EINTR))
			return 0;
		done += n > 0 ? (size_t)n : 0;
	}
	return 1;
}

static int agent_refuse(const char *what)
{
	char host[256] = "";

	gethostname(host, sizeof host - 1);
	fprintf(stderr, "tuttirun: on host %s: %s.\n", host, what);
	return 1;
}

/* The words live as long as the process. */
static int agent_obey(struct letter *letter, int *argc, char ***argv, struct agent *agent)
{
	const char *again;
	char why[600];

	for (int i = 0; i < letter->variable_count; i++)
		putenv(letter->variables[i]);
	if (chdir(letter->folder) != 0) {
		snprintf(why, sizeof why, "the job's folder %.400s: %s", letter->folder,
			 strerror(errno));
		return agent_refuse(why);
	}
	if (letter->input_bytes > 0) {
		agent->input_fd = file_input_open(letter->input, letter->input_bytes);
		if (agent->input_fd < 0)
			return agent_refuse("there is no memory for the input of rank 0");
	}
	again = getenv(AGENT_AGAIN);
	agent->is_again = again && strcmp(again, "1") == 0;
	*argc = letter->word_count;
	*argv = letter->words;
	return 0;
}

int agent_begin(int *argc, char ***argv, struct agent *agent)
{
	static struct letter letter;
	char head[AGENT_HEAD_BYTES], *bytes;
	long count;

	if (isatty(STDIN_FILENO))
		return agent_refuse(
			"--agent is what tuttirun --hosts starts on each host; it reads "
			"what to run from stdin");
	if (!agent_read_whole(head, sizeof head))
		return agent_refuse("the tuttirun that started this one has gone");
	count = letter_bytes(head);
	if (count < 0)
		return agent_refuse("this tuttirun and the one that started it are of different "
				    "versions");
	bytes = malloc((size_t)count + 1);
	if (!bytes || !agent_read_whole(bytes, (size_t)count) ||
	    !letter_read(&letter, bytes, (size_t)count))
		return agent_refuse("what shall run has not come whole");
	return agent_obey(&letter, argc, argv, agent);
}
