/* The folder that checkpoints are in, as rank 0 keeps it. dir/step_00000200 is a checkpoint, whole
 * since the moment that it has that name; when a step is saved again it is step_00000200.1, and so
 * on, and the ones before are removed. While it is written it is
 * dir/.step_00000200.tmp-0123456789abcdef, and .step_00000200.tmp-0123456789abcdef.lock beside it
 * is a file that rank 0's process has locked (flock): the kernel unlocks it when the process dies,
 * however that happens, and then the next save removes both. */
#ifndef TRAIN_CHECKPOINT_DIR_H
#define TRAIN_CHECKPOINT_DIR_H

#include "train/checkpoint/checkpoint_index.h"

enum { CHECKPOINT_NAME_BYTES = 64 };

struct checkpoint_dir {
	char *dir;
	char temporary[CHECKPOINT_NAME_BYTES]; /* name below dir, for all ranks; "": there is none
						*/
	int64_t step;
	int lock;
};

/* Rank 0, before the others write: removes what dead jobs have left below dir, and makes the
 * temporary folder. dir itself is made where it is missing, its parent is not. SYSTEM, MEMORY,
 * INVALID (step is negative) leave nothing. */
tutti_status checkpoint_dir_make(struct checkpoint_dir *made, const char *dir, int64_t step);
/* Rank 0, when all ranks' files are written and synced: texts[rank] is what
 * checkpoint_writer_finish gave there. Adds up the index, and makes the checkpoint one that is
 * found. On an error older ones are as they were. INVALID, MISMATCH: what the ranks have saved is
 * not one whole checkpoint; SYSTEM, MEMORY. */
tutti_status checkpoint_dir_commit(struct checkpoint_dir *made, const char *const *texts,
				   const size_t *bytes, int ranks);
/* Removes what was not committed. Fine for one that is all zeros, or finished. */
void checkpoint_dir_finish(struct checkpoint_dir *made);

struct checkpoint_found {
	char *path; /* of the newest whole one, freed by the caller; NULL: there is none */
	int64_t step;
	int passed_over;    /* newer ones that are damaged */
	char message[512]; /* what is wrong with the newest of them */
};
/* INVALID: there are some below dir, but all of them are damaged. SYSTEM: dir cannot be read; that
 * it is not there is OK. */
tutti_status checkpoint_dir_find(struct checkpoint_found *found, const char *dir);
/* The index of the checkpoint at path, if it is whole: COMMIT and the index are undamaged, and all
 * files there with the right sizes. INVALID, SYSTEM, MEMORY. */
tutti_status checkpoint_dir_read(struct checkpoint_index *index, const char *path);

/* ---- between the files of this part ---- */
/* A name below dir: which step, and which of those that were saved of it. */
struct checkpoint_name {
	int64_t step;
	unsigned again;
};
bool checkpoint_name_parse(struct checkpoint_name *name, const char *text);
void checkpoint_name_print(char text[CHECKPOINT_NAME_BYTES], struct checkpoint_name name);
/* The names below dir, newest first, freed by the caller. SYSTEM, MEMORY. */
tutti_status checkpoint_names(struct checkpoint_name **names, size_t *count, const char *dir);
/* COMMIT's text for an index of these bytes. */
void checkpoint_commit_text(char text[128], const char *index, size_t bytes);
/* Removes what dead jobs have left below dir. What cannot be removed stays. */
void checkpoint_sweep(const char *dir);
/* The files in path that a save has written, and path, if nothing else is in it. Links are not
 * followed: where path is one, it goes, and what it leads to stays. */
void checkpoint_remove(const char *path);

#endif
