/* Would break: a trainer, by its command line or its file of flags. What is taken is within what
 * the header promises; what is refused has a message, and changes nothing. The first byte says
 * which. */
#include "fuzz.h"

#include "train/flags/flags.h"

#include <math.h>
#include <string.h>

#define WORDS_MAX 30

static void check(const tutti_train_options *o)
{
	MUST(o->devices >= TUTTI_AUTO && o->devices <= 4096 && o->nodes >= 0 && o->nodes <= 65536);
	MUST(o->accumulate >= 0 && o->accumulate <= 65536 && o->port >= 0 && o->port <= 65535);
	MUST(o->config.strategy >= TUTTI_DDP && o->config.strategy <= TUTTI_LOCAL_SGD);
	MUST(isfinite(o->config.max_grad_norm) && o->config.max_grad_norm >= 0);
	MUST(memchr(o->resume, 0, sizeof o->resume) && memchr(o->test, 0, sizeof o->test));
	MUST(memchr(o->gpus, 0, sizeof o->gpus) && (o->num_gpus > 0) == (o->gpus[0] != '\0'));
}

/* A word a line. */
static void read_line(struct input *in)
{
	static tutti_train_options options;
	char *text = input_text(in), *argv[WORDS_MAX + 3] = {(char[]){"train"}},
	     *before[WORDS_MAX + 3];
	char *end = text + strlen(text);
	int argc = 1;

	for (char *word = text; argc <= WORDS_MAX && word < end;) {
		argv[argc++] = word;
		word += strcspn(word, "\n");
		if (*word)
			*word++ = '\0';
	}
	for (int i = 1; i < argc; i++) /* no file of this machine is opened */
		if (strncmp(argv[i], "--config", 8) == 0)
			argv[i] = (char[]){"-"};
	memcpy(before, argv, sizeof before);
	options = (tutti_train_options){0};
	int left = argc;
	if (tutti_train_config_read(&options, &left, argv) == TUTTI_OK) {
		MUST(left >= 1 && left <= argc && !argv[left]);
		check(&options);
	} else {
		MUST(left == argc && memcmp(before, argv, sizeof before) == 0);
		MUST(strlen(tutti_comm_error(NULL)) > 0 && options.devices == 0);
	}
	if (tutti_train_config_rest(left, argv, NULL) != TUTTI_OK)
		MUST(strncmp(tutti_comm_error(NULL), "There is no flag -", 18) == 0);
	free(text);
}

static void read_file(struct input *in)
{
	static tutti_train_options options;
	size_t bytes = in->left;
	char *text = input_text(in);

	options = (tutti_train_options){0};
	if (flags_read_text(&options, "fuzz", text, bytes) == TUTTI_OK)
		check(&options);
	else
		MUST(strstr(tutti_comm_error(NULL), "'fuzz'"));
	free(text);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};

	if (input_byte(&in) % 2)
		read_line(&in);
	else
		read_file(&in);
}
