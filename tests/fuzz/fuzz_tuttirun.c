/* Would break: tuttirun, by its command line, and by what ranks print: whatever they do, all of it
 * comes out, and no byte of another rank's in the middle of a line. The first byte says which. */
#include "fuzz.h"

#include "launch/options.h"
#include "launch/output.h"

#include <getopt.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 30

/* Words end at zero bytes. */
static void read_line(struct input *in)
{
	char *text = input_text(in), *argv[WORDS_MAX + 2] = {"tuttirun"};
	char *end = text + strlen(text);
	struct options options;
	int argc = 1;

	for (char *word = text; argc <= WORDS_MAX && word < end;) {
		argv[argc++] = word;
		word += strcspn(word, " ");
		if (*word)
			*word++ = '\0';
	}
	optind = 0; /* a new line, for getopt */
	if (options_parse(&options, argc, argv) == -1) {
		MUST(options.ranks > 0 || options.hostfile);
		MUST(options.ranks <= RANKS_MAX);
		MUST(options.nodes > options.node_rank && *options.program);
	}
	free(text);
}

static size_t lines_end(const char *data, size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++)
		n += data[i] == '\n';
	return n;
}

/* Two streams into one sink; the input says which of them gets how many bytes. */
static void print(struct input *in)
{
	static struct sink sink;
	static struct stream streams[2];
	size_t newlines = 0;
	int pipes[2][2];

	sink = (struct sink){.fd = -1};
	for (int i = 0; i < 2; i++) {
		MUST(pipe(pipes[i]) == 0);
		streams[i] = (struct stream){.fd = pipes[i][0], .sink = &sink};
		if (input_byte(in) & 1)
			strcpy(streams[i].prefix, i ? "[1] " : "[0] ");
	}
	while (in->left) {
		uint8_t what = input_byte(in);
		char bytes[128];
		size_t n = what & 127, from = in->left < n ? in->left : n;
		input_bytes(in, bytes, n);
		for (size_t i = 0; i < n; i++)
			bytes[i] = bytes[i] == '\r' ? '\n' : bytes[i];
		newlines += lines_end(bytes, n);
		if (from == 0 || n == 0 || sink.bytes > SINK_BYTES / 2)
			continue;
		MUST(write(pipes[what >> 7][1], bytes, n) == (ssize_t)n);
		stream_pump(&streams[what >> 7]);
	}
	for (int i = 0; i < 2; i++) {
		close(pipes[i][1]);
		while (stream_pump(&streams[i]))
			continue;
		stream_close(&streams[i]);
		MUST(streams[i].bytes == 0 || sink.bytes > SINK_BYTES / 2);
	}
	MUST(sink.bytes <= SINK_BYTES && lines_end(sink.data, sink.bytes) <= newlines + 2);
	MUST(sink.bytes == 0 || sink.data[sink.bytes - 1] == '\n' || sink.bytes > SINK_BYTES / 2);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};

	if (input_byte(&in) % 2)
		read_line(&in);
	else
		print(&in);
}
