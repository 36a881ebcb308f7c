process VIRNUCPRO_PREDICT {
    tag "$meta.id"
    label 'process_high'
    label 'process_gpu'

    conda "${moduleDir}/environment.yml"
    container "virnucpro:2.0.0"

    input:
    tuple val(meta), path(sequences)
    path models

    output:
    tuple val(meta), path("${prefix}/${prefix}_report.html")         , emit: report
    tuple val(meta), path("${prefix}/${prefix}_virus.tsv")           , emit: virus_table
    tuple val(meta), path("${prefix}/${prefix}_virus.fna")           , emit: virus
    tuple val(meta), path("${prefix}/${prefix}_virus*.fastq.gz")     , emit: reads, optional: true
    tuple val(meta), path("${prefix}/${prefix}_virus_[12].fna")      , emit: mates, optional: true
    tuple val(meta), path("${prefix}/${prefix}_virus_genes.*")       , emit: genes, optional: true
    tuple val(meta), path("${prefix}/${prefix}_regions.*")           , emit: regions, optional: true
    tuple val(meta), path("${prefix}/${prefix}_contigs.tsv")         , emit: contigs
    tuple val(meta), path("${prefix}/${prefix}_chunks.tsv")          , emit: chunks
    tuple val(meta), path("${prefix}/${prefix}_run.json")            , emit: record
    tuple val(meta), path("${prefix}/${prefix}_mqc.tsv")             , emit: multiqc
    tuple val("${task.process}"), val('virnucpro'), eval("virnucpro --version | sed 's/.* //'"), emit: versions_virnucpro, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    // One file, or the first and the second mates of paired reads.
    def (first, second) = sequences instanceof List ? sequences : [sequences, null]
    def mates = second ? "--input2 \"${second}\"" : ''
    // The folder that `XDG_CACHE_HOME=models virnucpro models fetch` filled; matplotlib writes elsewhere.
    def cache = models ? "export XDG_CACHE_HOME=\"\$PWD/${models}\" MPLCONFIGDIR=\"\$PWD\"" : ''
    """
    ${cache}
    # A run is named after its input; FASTA, FASTQ and compression are recognised by content.
    [ -e "${prefix}.fa" ] || ln -s "${first}" "${prefix}.fa"
    virnucpro predict "${prefix}.fa" ${mates} \\
        --output-dir "${prefix}" \\
        --threads ${task.cpus} \\
        --no-progress \\
        ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir -p "${prefix}"
    touch "${prefix}/${prefix}_report.html" "${prefix}/${prefix}_virus.tsv"
    touch "${prefix}/${prefix}_virus.fna" "${prefix}/${prefix}_run.json"
    touch "${prefix}/${prefix}_contigs.tsv" "${prefix}/${prefix}_chunks.tsv"
    touch "${prefix}/${prefix}_mqc.tsv"
    """
}
