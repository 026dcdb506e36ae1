"""What the review before version 0.3 found, each with the test that keeps it mended."""

import re
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1] / "tests"
FINDINGS: tuple[tuple[str, str, str], ...] = (
    ("checkpoint of another activation, mean, density, schedule", "training/test_checkpoint.py", "test_a_checkpoint_of_other_functions_is_refused"),
    ("flipped bits in a checkpoint", "training/test_checkpoint.py", "test_every_flipped_bit_is_refused"),
    ("step counter of -5", "training/test_checkpoint.py", "test_a_step_that_the_run_does_not_have_is_refused"),
    ("checkpoint of another shape", "training/test_checkpoint.py", "test_arrays_of_another_shape_are_refused_by_name"),
    ("checkpoint with NaN weights or an order of rows that is none", "training/test_checkpoint.py", "test_numbers_that_no_run_writes_are_refused"),
    ("predict TYPO falls back to the parent directory", "test_cli.py", "test_a_mistyped_model_is_never_another_one"),
    ("an integer for missed_as_noise eats memory", "test_io_checks.py", "test_a_field_of_another_type_is_refused_before_anything_is_built_of_it"),
    ("huge widths in model.json", "test_cli.py", "test_a_description_that_was_changed_and_sealed_again_is_refused"),
    ("posteriors of methods are not checked", "test_io_checks.py", "test_a_posterior_of_a_method_is_checked_too"),
    ("NaN is saved and loaded", "test_io_checks.py", "test_numbers_that_are_not_finite_are_neither_saved_nor_loaded"),
    ("unknown fields are accepted", "test_io_checks.py", "test_what_nobody_knows_is_refused"),
    ("no signature", "test_io_checks.py", "test_a_signed_file_is_read_with_its_secret_only"),
    ("rank of inf or 1.5; sign errors; columns that are not there; 1e300; dates; masks; 'no'; complex weights; ...", "test_bad_input.py",
     "test_what_would_give_a_meaningless_result_is_refused_with_a_sentence"),
    ("wrong keys, NumPy integers, bfloat16, torch with grad, under jit", "test_arguments.py", "test_an_annotation_says_what_is_accepted"),
    ("a new function forgets its checks", "test_arguments.py", "test_every_public_callable_is_checked"),
    ("164 of 646 calls end in an obscure error", "test_trust.py", "test_no_wrong_value_is_met_with_silence_or_an_obscure_error"),
    ("counts without bound", "test_arguments.py", "test_counts_that_no_machine_holds_are_refused_with_what_fits"),
    ("full disk", "host/test_files.py", "test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else"),
    ("CSV: long fields, semicolons, 1_000, comments, empty names", "test_cli.py", "test_a_bad_table_is_one_sentence_that_names_the_place"),
    ("sealed model.json: missing keys, negative widths", "test_cli.py", "test_a_description_that_was_changed_and_sealed_again_is_refused"),
    ("sealed model.json: deep nesting", "test_cli.py", "test_a_deeply_nested_description_is_one_sentence"),
    ("Ctrl-C says what is not true", "test_cli.py", "test_an_interrupt_says_what_is_kept"),
    ("Ctrl-C takes a whole chunk", "training/test_train.py", "test_an_interrupt_is_heard_within_a_chunk"),
    ("ASCII locale, closed pipe", "test_cli.py", "test_other_locales_and_closed_pipes_are_no_errors"),
    ("--seed -1", "test_cli.py", "test_a_seed_that_is_none_is_refused"),
    ("--out DIR", "test_cli.py", "test_places_that_cannot_be_written_are_found_before_the_work"),
    ("data verify stops at the first missing set", "test_cli.py", "test_verify_goes_through_all_sets_and_names_a_command"),
    ("0600 over 0664", "host/test_files.py", "test_a_file_that_is_replaced_keeps_its_permissions"),
    ("0644 under umask 077", "host/test_files.py", "test_a_new_file_has_what_the_umask_leaves"),
    ("symbolic links are replaced", "host/test_files.py", "test_a_link_is_followed"),
    (".part files stay", "host/test_files.py", "test_what_a_killed_writer_left_is_removed_by_the_next"),
    ("joblib's fork backend deadlocks", "test_long_runs.py", "test_a_fit_in_a_forked_process_is_refused_instead_of_waiting_forever"),
    ("Poisson counts above 2^31", "test_bad_input.py", "test_what_would_give_a_meaningless_result_is_refused_with_a_sentence"),
    ("checkpoint in a missing directory", "test_bad_input.py", "test_what_would_give_a_meaningless_result_is_refused_with_a_sentence"),
    ("the disk is not synced before the rename", "host/test_files.py", "test_the_bytes_are_on_the_disk_before_the_name_and_the_name_at_the_end"),
    ("two writers on one file", "host/test_files.py", "test_of_many_writers_one_wins_whole"),
    ("a damaged export is not noticed", "test_export.py", "test_a_flipped_bit_is_seen_before_the_program_is_read"),
    ("checkpoint of other methods, constants, globals, attributes", "training/test_checkpoint.py", "test_the_fingerprint_of_other_functions_is_another"),
    ("a device or a pipe is replaced by a file", "host/test_files.py", "test_a_device_or_a_pipe_is_never_replaced_by_a_file"),
    ("a write-protected file is replaced", "host/test_files.py", "test_a_write_protected_file_is_kept"),
    ("Ctrl-C in every other command", "test_cli.py", "test_an_interrupt_of_data_is_no_traceback"),
    ("Ctrl-C within the first second, while libraries are imported", "test_cli.py", "test_an_interrupt_of_the_imports_is_one_sentence"),
    ("predict '' takes the model of the current directory", "test_cli.py", "test_a_name_that_is_empty_is_not_the_current_directory"),
    ("a box of 1e300, of no width, of two shapes", "test_context.py", "test_impossible_regions_are_refused"),
    ("predictions, draws and scores in a fork deadlock", "test_long_runs.py",
     "test_a_fit_in_a_forked_process_is_refused_instead_of_waiting_forever"),
    ("memory maps of many sizes", "test_long_runs.py", "test_programs_are_dropped_before_the_maps_run_out"),
)  # fmt: skip


def missing() -> list[str]:
    """Tests that the list names and the suite has not."""
    return [
        f"{file}::{test}"
        for _, file, test in FINDINGS
        if not (_TESTS / file).exists() or not re.search(rf"^def {test}\(", (_TESTS / file).read_text(), re.MULTILINE)
    ]
