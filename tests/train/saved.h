/* Checkpoints of a small model. Their contents depend on the step alone, so that a reader can check
 * them. */
#ifndef TESTS_TRAIN_SAVED_H
#define TESTS_TRAIN_SAVED_H

#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/safetensors.h"

enum { SAVED_TENSORS = 8 };

extern const struct checkpoint_tensor saved_tensors[SAVED_TENSORS];
/* The bytes begin to end of a tensor. */
void saved_fill(char *to, int64_t step, int tensor, uint64_t begin, uint64_t end);

/* How ranks 0 to n - 1 save, one after the other, in this thread. */
struct saving {
	const char *dir;
	int64_t step;
	int ranks;
	size_t piece_bytes, portion; /* bytes handed over at once; 0: all */
	int missing_rank;            /* this rank + 1 saves nothing; 0: none */
};
tutti_status saved_write(const struct saving *saving);
/* checkpoint_dir_commit of the ranks' texts. */
tutti_status saved_commit(struct checkpoint_dir *made, char *const *texts, const size_t *bytes,
			  int ranks);
/* Reads the checkpoint as that many ranks do, each its own share. */
tutti_status saved_read(const char *path, int ranks, int64_t *step, bool *is_right);

/* A folder for this test, on a file system in memory. saved_remove removes it and its contents. */
void saved_folder(char path[64]);
void saved_remove(const char *path);
/* cmocka's setup and teardown of a test with a folder of its own, saved_dir. */
extern char saved_dir[64];
int saved_setup(void **state);
int saved_teardown(void **state);
/* Names below path that begin with start. */
int saved_count(const char *path, const char *start);
int saved_fds(void);
bool saved_has_python(void); /* with a message if there is none */
/* The exit status of a test in a build without jansson: 77, or 1 if its message is wrong. */
int saved_refusal(void);

#endif
